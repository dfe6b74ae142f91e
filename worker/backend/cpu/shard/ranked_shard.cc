#include "worker/backend/cpu/shard/ranked_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status.h"
#include "worker/backend/cpu/shard/kv_cache.h"
#include "worker/collective/thread_collective.h"

namespace strata::cpu {
namespace {

// No part of a step takes as long on a machine that still computes.
constexpr milliseconds kRankTimeout(60'000);

}  // namespace

RankedShard::RankedShard(const StageSpec& spec, const ShardRanks& ranks,
                         std::vector<RankOutputs> outputs)
    : spec_(spec),
      own_cores_(ranks.own_cores),
      outputs_(std::move(outputs)),
      callers_(static_cast<uint32_t>(outputs_.size()),
               ranks.own_cores ? static_cast<uint32_t>(outputs_.size()) : 0),
      statuses_(outputs_.size()) {}

absl::StatusOr<std::unique_ptr<RankedShard>> RankedShard::Create(
    const StageSpec& spec, const ShardRanks& ranks, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how) {
  std::unique_ptr<RankedShard> shard(
      new RankedShard(spec, ranks, SplitOutputs(spec.model, ranks.shares)));
  ASSIGN_OR_RETURN(shard->shards_, CpuShard::CreateRanks(spec, shard->outputs_, source, packed,
                                                         progress, kernels, how, ranks.pools));
  shard->Connect();
  return shard;
}

void RankedShard::Connect() {
  auto ends =
      MakeThreadCollectives(static_cast<uint32_t>(shards_.size()),
                            {.timeout = kRankTimeout, .clock = &clock_, .spins = own_cores_});
  ++epoch_;
  for (size_t rank = 0; rank < shards_.size(); ++rank) {
    shards_[rank]->Connect(std::move(ends[rank]), epoch_);
  }
  broken_ = false;
}

absl::Status RankedShard::OnAll(const std::function<absl::Status(CpuShard*)>& call) {
  callers_.Run([&](uint32_t rank) {
    statuses_[rank] = call(shards_[rank].get());
    if (!statuses_[rank].ok()) {
      shards_[rank]->Abort(statuses_[rank]);
    }
  });
  absl::Status first;
  for (const absl::Status& status : statuses_) {
    // Rather what went wrong than who heard of it.
    if (!status.ok() && (first.ok() || ReasonOf(first) == kCollectiveAborted)) {
      first = status;
    }
  }
  broken_ = broken_ || !first.ok();
  return first;
}

absl::Status RankedShard::OnAllWithResidual(const std::function<absl::Status(CpuShard*)>& call) {
  const bool shared = std::exchange(shared_, true);
  return OnAll([&](CpuShard* shard) {
    RETURN_IF_ERROR(shared ? absl::OkStatus() : shard->ShareResidual());
    return call(shard);
  });
}

absl::Status RankedShard::Begin(const Batch& batch) {
  if (broken_) {
    Connect();
  }
  shared_ = true;
  return OnAll([&](CpuShard* shard) { return shard->Begin(batch); });
}

absl::Status RankedShard::Embed() {
  shared_ = false;
  return shards_[0]->Embed();
}

absl::Status RankedShard::EmbedInputs(std::span<const uint32_t> rows,
                                      std::span<const float> values) {
  shared_ = false;
  return shards_[0]->EmbedInputs(rows, values);
}

absl::Status RankedShard::SetResidual(std::span<const float> values) {
  shared_ = false;
  return shards_[0]->SetResidual(values);
}

absl::Status RankedShard::Attention(uint32_t layer) {
  return OnAllWithResidual([&](CpuShard* shard) { return shard->Attention(layer); });
}

absl::Status RankedShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  return OnAllWithResidual([&](CpuShard* shard) { return shard->AttentionOfSome(layer, rows); });
}

absl::Status RankedShard::Mlp(uint32_t layer) {
  return OnAllWithResidual([&](CpuShard* shard) { return shard->Mlp(layer); });
}

absl::Status RankedShard::ReadResidual(std::span<float> out) {
  return shards_[0]->ReadResidual(out);
}

absl::Status RankedShard::Head(std::span<const uint32_t> rows) {
  return OnAllWithResidual([&](CpuShard* shard) { return shard->Head(rows); });
}

absl::Status RankedShard::ReadLogits(std::span<float> out) {
  return OnAll([&](CpuShard* shard) { return shard->ReadLogits(out); });
}

absl::Status RankedShard::CopyPage(uint32_t group, PageId from, PageId to) {
  for (const std::unique_ptr<CpuShard>& shard : shards_) {
    RETURN_IF_ERROR(shard->CopyPage(group, from, to));
  }
  return absl::OkStatus();
}

uint64_t RankedShard::PageBytes(uint32_t group) const {
  const bool f16 = spec_.kv_dtype != v1::KV_DTYPE_F32;
  uint64_t bytes = 0;
  for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
    const AttentionSpec& attention = spec_.model.layers[layer].attention;
    bytes += attention.kv_group == group ? KvLayout::Of(attention, f16).page_bytes : 0;
  }
  return bytes;
}

absl::Status RankedShard::ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) {
  RETURN_IF_ERROR(shards_[0]->calls().PageOf(group, page, PageBytes(group), out.size()));
  std::vector<std::vector<uint8_t>> parts;
  for (const std::unique_ptr<CpuShard>& shard : shards_) {
    parts.emplace_back(shard->PageBytes(group));
    if (!parts.back().empty()) {
      RETURN_IF_ERROR(shard->ReadPage(group, page, parts.back()));
    }
  }
  shards_[0]->ForPageParts(group, [&](size_t rank, size_t at, size_t whole, size_t bytes) {
    std::memcpy(out.data() + whole, parts[rank].data() + at, bytes);
  });
  return absl::OkStatus();
}

absl::Status RankedShard::WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) {
  RETURN_IF_ERROR(shards_[0]->calls().PageOf(group, page, PageBytes(group), in.size()));
  std::vector<std::vector<uint8_t>> parts;
  for (const std::unique_ptr<CpuShard>& shard : shards_) {
    parts.emplace_back(shard->PageBytes(group));
  }
  shards_[0]->ForPageParts(group, [&](size_t rank, size_t at, size_t whole, size_t bytes) {
    std::memcpy(parts[rank].data() + at, in.data() + whole, bytes);
  });
  for (size_t rank = 0; rank < shards_.size(); ++rank) {
    if (!parts[rank].empty()) {
      RETURN_IF_ERROR(shards_[rank]->WritePage(group, page, parts[rank]));
    }
  }
  return absl::OkStatus();
}

absl::Status RankedShard::ResizeKv(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(shards_[0]->calls().ResizeKv(pages));
  // Of all ranks first, so that old and new pages need not fit together.
  const std::vector<uint64_t> none(pages.size());
  const auto resize = [&](std::span<const uint64_t> to) {
    for (const std::unique_ptr<CpuShard>& shard : shards_) {
      RETURN_IF_ERROR(shard->ResizeKv(to));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(resize(none));
  const absl::Status status = resize(pages);
  if (!status.ok()) {
    RETURN_IF_ERROR(resize(none));
  }
  return status;
}

uint64_t RankedShard::MemoryBytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<CpuShard>& shard : shards_) {
    bytes += shard->MemoryBytes();
  }
  return bytes;
}

uint64_t RankedShard::StepReadBytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<CpuShard>& shard : shards_) {
    bytes += shard->StepReadBytes();
  }
  return bytes;
}

}  // namespace strata::cpu
