#include "worker/backend/ranked/ranked_shard.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status Broken(const std::string& what, const absl::Status& why) {
  return Error(absl::StatusCode::kUnavailable, kRanksBroken,
               absl::StrCat(what, ": ", why.message()))
      .Fact("cause", ReasonOf(why));
}

}  // namespace

RankedShard::RankedShard(std::vector<std::unique_ptr<RankShard>> ranks, RankedShardOptions options)
    : options_(std::move(options)),
      shards_(std::move(ranks)),
      callers_(static_cast<uint32_t>(shards_.size()),
               options_.own_cores ? static_cast<uint32_t>(shards_.size()) : 0),
      statuses_(shards_.size()) {}

absl::StatusOr<std::unique_ptr<RankedShard>> RankedShard::Create(
    std::vector<std::unique_ptr<RankShard>> ranks, RankedShardOptions options) {
  std::unique_ptr<RankedShard> shard(new RankedShard(std::move(ranks), std::move(options)));
  RETURN_IF_ERROR(shard->Connect());
  return shard;
}

absl::Status RankedShard::Connect() {
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Collective>> ends, options_.join());
  ++epoch_;
  for (size_t rank = 0; rank < shards_.size(); ++rank) {
    shards_[rank]->Connect(std::move(ends[rank]), epoch_);
  }
  broken_ = false;
  return absl::OkStatus();
}

absl::Status RankedShard::ConnectAgain() {
  if (!broken_) {
    return absl::OkStatus();
  }
  const absl::Status status = Connect();
  if (status.ok() || options_.is_of_join == nullptr || !options_.is_of_join(status)) {
    return status;
  }
  return Broken("a rank of the stage does not join", status);
}

absl::Status RankedShard::OnAll(const std::function<absl::Status(RankShard*)>& call) {
  callers_.Run([&](uint32_t rank) {
    statuses_[rank] = shards_[rank]->Enter();
    if (statuses_[rank].ok()) {
      statuses_[rank] = call(shards_[rank].get());
    }
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
  return options_.is_of_join != nullptr && options_.is_of_join(first)
             ? Broken("the stage lost a rank", first)
             : first;
}

absl::Status RankedShard::OnAllWithResidual(const std::function<absl::Status(RankShard*)>& call) {
  const bool shared = std::exchange(shared_, true);
  return OnAll([&](RankShard* shard) {
    RETURN_IF_ERROR(shared ? absl::OkStatus() : shard->ShareResidual());
    return call(shard);
  });
}

absl::Status RankedShard::BeginEpoch(uint64_t /*epoch*/) { return ConnectAgain(); }

absl::Status RankedShard::Begin(const Batch& batch) {
  RETURN_IF_ERROR(ConnectAgain());
  shared_ = true;
  return OnAll([&](RankShard* shard) { return shard->Begin(batch); });
}

absl::Status RankedShard::OnFirst(const std::function<absl::Status(RankShard*)>& call) {
  shared_ = false;
  RETURN_IF_ERROR(shards_[0]->Enter());
  return call(shards_[0].get());
}

absl::Status RankedShard::Embed() {
  return OnFirst([](RankShard* shard) { return shard->Embed(); });
}

absl::Status RankedShard::EmbedInputs(std::span<const uint32_t> rows,
                                      std::span<const float> values) {
  return OnFirst([&](RankShard* shard) { return shard->EmbedInputs(rows, values); });
}

absl::Status RankedShard::SetResidual(std::span<const float> values) {
  return OnFirst([&](RankShard* shard) { return shard->SetResidual(values); });
}

absl::Status RankedShard::Attention(uint32_t layer) {
  return OnAllWithResidual([&](RankShard* shard) { return shard->Attention(layer); });
}

absl::Status RankedShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  return OnAllWithResidual([&](RankShard* shard) { return shard->AttentionOfSome(layer, rows); });
}

absl::Status RankedShard::Mlp(uint32_t layer) {
  return OnAllWithResidual([&](RankShard* shard) { return shard->Mlp(layer); });
}

absl::Status RankedShard::ReadResidual(std::span<float> out) {
  if (options_.behind) {
    RETURN_IF_ERROR(OnAll([](RankShard* shard) { return shard->Finish(); }));
    RETURN_IF_ERROR(shards_[0]->Enter());
  }
  return shards_[0]->ReadResidual(out);
}

absl::Status RankedShard::Head(std::span<const uint32_t> rows) {
  return OnAllWithResidual([&](RankShard* shard) { return shard->Head(rows); });
}

absl::Status RankedShard::ReadLogits(std::span<float> out) {
  return OnAll([&](RankShard* shard) { return shard->ReadLogits(out); });
}

absl::Status RankedShard::CopyPage(uint32_t group, PageId from, PageId to) {
  RETURN_IF_ERROR(shards_[0]->calls().CopyPage(group, from, to));
  return OnAll([&](RankShard* shard) { return shard->CopyPage(group, from, to); });
}

uint64_t RankedShard::PageBytes(uint32_t group) const {
  uint64_t bytes = 0;
  shards_[0]->ForPageParts(group, [&](size_t, size_t, size_t whole, size_t part) {
    bytes = std::max<uint64_t>(bytes, whole + part);
  });
  return bytes;
}

absl::Status RankedShard::ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) {
  RETURN_IF_ERROR(shards_[0]->calls().PageOf(group, page, PageBytes(group), out.size()));
  std::vector<std::vector<uint8_t>> parts;
  for (const std::unique_ptr<RankShard>& shard : shards_) {
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
  for (const std::unique_ptr<RankShard>& shard : shards_) {
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
    return OnAll([&](RankShard* shard) { return shard->ResizeKv(to); });
  };
  RETURN_IF_ERROR(resize(none));
  const absl::Status status = resize(pages);
  if (!status.ok()) {
    RETURN_IF_ERROR(resize(none));
  }
  return status;
}

uint64_t RankedShard::MemoryBytes() const {
  std::vector<uint64_t> bytes;
  for (const std::unique_ptr<RankShard>& shard : shards_) {
    bytes.push_back(shard->MemoryBytes());
  }
  return options_.count ? options_.count(bytes)
                        : std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

uint64_t RankedShard::StepReadBytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<RankShard>& shard : shards_) {
    bytes += shard->StepReadBytes();
  }
  return bytes;
}

}  // namespace strata
