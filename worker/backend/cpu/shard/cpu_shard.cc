#include "worker/backend/cpu/shard/cpu_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/cpu/threads/float_environment.h"

namespace strata::cpu {
namespace {

// Asked before memory is touched: an allocation that the system cannot back kills later.
absl::Status CheckAvailable(uint64_t needed) {
  // What is yet to be moved the system counts as free.
  const uint64_t free = AvailableMemoryBytes();
  const uint64_t available = free - std::min(free, PageMover::UnmovedBytes());
  if (free != 0 && needed > available) {
    return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                 absl::StrCat("the stage needs ", FormatSize(needed), " where ",
                              FormatSize(available), " are available"))
        .Limit(absl::StrCat("available=", FormatSize(available)))
        .Hint("load fewer layers or fewer KV tokens on this node");
  }
  return absl::OkStatus();
}

}  // namespace

CpuShard::CpuShard(const StageSpec& spec, const Kernels* kernels, std::shared_ptr<ThreadPool> pool,
                   std::unique_ptr<RankLink> link)
    : stage_(spec, kernels, std::move(pool), std::move(link)),
      calls_(&stage_.spec),
      products_(stage_),
      residual_(stage_, &products_),
      attention_(stage_, &products_, &residual_),
      mlp_(stage_, &products_, &residual_),
      mixture_(stage_, &products_, &residual_, &mlp_) {}

absl::StatusOr<std::unique_ptr<CpuShard>> CpuShard::Create(
    const StageSpec& spec, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how,
    std::shared_ptr<ThreadPool> pool) {
  const OutputRange all[] = {{0, kShareParts}};
  const std::shared_ptr<ThreadPool> pools[] = {std::move(pool)};
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<CpuShard>> only,
                   CreateRanks(spec, SplitOutputs(spec.model, all), source, packed, progress,
                               kernels, how, pools));
  return std::move(only[0]);
}

absl::StatusOr<std::vector<std::unique_ptr<CpuShard>>> CpuShard::CreateRanks(
    const StageSpec& spec, const std::vector<RankOutputs>& ranks, const TensorSource& source,
    PackedStore* packed, const LoadProgressFn& progress, const Kernels* kernels,
    const ShardLoading& how, std::span<const std::shared_ptr<ThreadPool>> pools) {
  STRATA_CHECK(pools.size() == ranks.size());
  return CreateSome(spec, ranks, 0, source, packed, progress, kernels, how, pools);
}

absl::StatusOr<std::unique_ptr<CpuShard>> CpuShard::CreateRank(
    const StageSpec& spec, const RankPlace& place, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how,
    std::shared_ptr<ThreadPool> pool) {
  const std::shared_ptr<ThreadPool> pools[] = {std::move(pool)};
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<CpuShard>> only,
                   CreateSome(spec, SplitOutputs(spec.model, place.shares), place.rank, source,
                              packed, progress, kernels, how, pools));
  return std::move(only[0]);
}

absl::StatusOr<std::vector<std::unique_ptr<CpuShard>>> CpuShard::CreateSome(
    const StageSpec& spec, const std::vector<RankOutputs>& ranks, uint32_t first,
    const TensorSource& source, PackedStore* packed, const LoadProgressFn& progress,
    const Kernels* kernels, const ShardLoading& how,
    std::span<const std::shared_ptr<ThreadPool>> pools) {
  std::vector<std::unique_ptr<CpuShard>> shards;
  std::vector<std::unique_ptr<WeightLoader>> loaders;
  uint64_t bytes = 0;
  for (uint32_t rank = first; rank < first + pools.size(); ++rank) {
    shards.emplace_back(new CpuShard(spec, kernels, pools[rank - first],
                                     std::make_unique<RankLink>(spec.model, ranks, rank)));
    StageState& stage = shards.back()->stage_;
    loaders.push_back(std::make_unique<WeightLoader>(
        spec, source, packed, how.placer, how.may_map, &stage.weights,
        RankWeights{&stage.link->outputs(), rank == 0, stage.link->alone()}));
    RETURN_IF_ERROR(loaders.back()->Check());
    if (pools.size() < ranks.size()) {
      shards.back()->gathered_bytes_ = MostGatheredBytes(
          spec.model, spec.first_layer, spec.last_layer, spec.max_batch_tokens, spec.heads);
    }
    bytes += loaders.back()->packed_bytes() + KvCache::Bytes(stage.spec, stage.kv_f16) +
             stage.sizes.Bytes() + shards.back()->gathered_bytes_;
  }
  RETURN_IF_ERROR(CheckAvailable(bytes));
  RETURN_IF_ERROR(WeightLoader::LoadRanks(loaders, *kernels, how.threads, progress));
  for (const std::unique_ptr<CpuShard>& shard : shards) {
    RETURN_IF_ERROR(shard->Allocate());
    if (const auto& mapped = shard->stage_.weights.mapped; !mapped.empty()) {
      shard->mover_ = std::make_unique<PageMover>(mapped, how.moved);
    }
  }
  return shards;
}

absl::Status CpuShard::Allocate() {
  RETURN_IF_ERROR(stage_.kv.Allocate(stage_.spec, stage_.kv_f16));
  RETURN_IF_ERROR(stage_.rotary.Allocate(stage_.spec));
  RETURN_IF_ERROR(residual_.Allocate());
  RETURN_IF_ERROR(products_.Allocate());
  RETURN_IF_ERROR(attention_.Allocate());
  RETURN_IF_ERROR(mlp_.Allocate());
  RETURN_IF_ERROR(mixture_.Allocate());
  kept_.reserve(stage_.spec.max_batch_items);
  return absl::OkStatus();
}

absl::Status CpuShard::ResizeKv(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(calls_.ResizeKv(pages));
  stage_.batch = Batch{};
  stage_.kv = KvCache{};  // First, so that old and new pages need not fit together.
  stage_.spec.kv_pages.assign(pages.begin(), pages.end());
  absl::Status status = CheckAvailable(KvCache::Bytes(stage_.spec, stage_.kv_f16));
  if (status.ok()) {
    status = stage_.kv.Allocate(stage_.spec, stage_.kv_f16);
  }
  if (!status.ok()) {
    stage_.kv = KvCache{};
    stage_.spec.kv_pages.assign(pages.size(), 0);
  }
  return status;
}

uint64_t CpuShard::MemoryBytes() const {
  return stage_.weights.Bytes() + stage_.kv.bytes() + stage_.rotary.bytes() + products_.bytes() +
         residual_.bytes() + attention_.bytes() + mlp_.bytes() + mixture_.bytes() + gathered_bytes_;
}

absl::Status CpuShard::Begin(const Batch& batch) {
  stage_.batch = Batch{};
  head_rows_ = 0;
  RETURN_IF_ERROR(calls_.Begin(batch));
  stage_.batch = batch;
  stage_.link->Begin();
  return absl::OkStatus();
}

absl::Status CpuShard::Embed() {
  RETURN_IF_ERROR(calls_.Embed(stage_.batch.token_ids, stage_.batch.rows));
  residual_.Embed();
  return absl::OkStatus();
}

absl::Status CpuShard::ShareResidual() {
  return stage_.link->Gather(residual_.row(0), stage_.batch.rows, stage_.sizes.hidden,
                             stage_.link->from_first());
}

absl::Status CpuShard::GatherLogits(std::span<float> logits) {
  RETURN_IF_ERROR(calls_.Logits(logits.size(), head_rows_));
  return head_rows_ == 0 ? absl::OkStatus()
                         : stage_.link->Gather(logits.data(), head_rows_, stage_.spec.model.vocab,
                                               stage_.link->logits(), /*to_first=*/true);
}

absl::Status CpuShard::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  const size_t hidden = stage_.spec.model.hidden;
  RETURN_IF_ERROR(calls_.EmbedInputs(rows, values.size(), stage_.batch.rows));
  const float scale = stage_.spec.model.input_embedding_scale;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::transform(values.begin() + i * hidden, values.begin() + (i + 1) * hidden,
                   residual_.row(rows[i]), [scale](float x) { return scale == 1 ? x : x * scale; });
  }
  return absl::OkStatus();
}

absl::Status CpuShard::SetResidual(std::span<const float> values) {
  const size_t hidden = stage_.spec.model.hidden;
  RETURN_IF_ERROR(calls_.Residual(values.size(), stage_.batch.rows));
  for (size_t row = 0; row < stage_.batch.rows; ++row) {
    std::memcpy(residual_.row(row), values.data() + row * hidden, hidden * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadResidual(std::span<float> out) {
  const size_t hidden = stage_.spec.model.hidden;
  RETURN_IF_ERROR(calls_.Residual(out.size(), stage_.batch.rows));
  for (size_t row = 0; row < stage_.batch.rows; ++row) {
    std::memcpy(out.data() + row * hidden, residual_.row(row), hidden * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::Attention(uint32_t layer) {
  RETURN_IF_ERROR(calls_.Layer(layer));
  return stage_.batch.rows > 0 ? attention_.Compute(layer) : absl::OkStatus();
}

absl::Status CpuShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.AttentionOfSome(layer, rows, stage_.batch.items));
  if (stage_.batch.rows == 0) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(attention_.AppendKeysAndValues(layer, /*queries=*/!rows.empty()));
  KeepRows(rows);
  return stage_.batch.rows > 0 ? attention_.Finish(layer) : absl::OkStatus();
}

void CpuShard::KeepRows(std::span<const uint32_t> rows) {
  kept_.clear();
  const BatchItem* item = stage_.batch.items.data();
  for (uint32_t to = 0; to < rows.size(); ++to) {
    const uint32_t row = rows[to];
    while (row >= item->first_row + item->rows) {
      ++item;
    }
    if (to > 0 && rows[to - 1] >= item->first_row) {
      ++kept_.back().rows;
    } else {
      kept_.push_back(
          {to, 1, item->position + row - item->first_row, item->tables, item->rotary_variant});
    }
  }
  residual_.Keep(rows);
  attention_.KeepRows(rows);
  stage_.batch = {.rows = static_cast<uint32_t>(rows.size()), .token_ids = {}, .items = kept_};
}

absl::Status CpuShard::Mlp(uint32_t layer) {
  RETURN_IF_ERROR(calls_.Layer(layer));
  if (stage_.batch.rows == 0) {
    return absl::OkStatus();
  }
  return stage_.layer(layer).mlp.experts != 0 ? mixture_.Compute(layer) : mlp_.Compute(layer);
}

absl::Status CpuShard::Head(std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.Head(rows, stage_.batch.rows));
  head_rows_ = static_cast<uint32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(products_.normed() + i * stage_.sizes.hidden, residual_.row(rows[i]),
                stage_.sizes.hidden * sizeof(float));
  }
  if (head_rows_ > 0 && !stage_.link->outputs().vocab.empty()) {
    products_.Pack(
        Products::Normed(products_.Rows(products_.normed(), stage_.sizes.hidden,
                                        stage_.spec.model.hidden, {&stage_.weights.head}),
                         stage_.weights.final_norm, stage_.spec.model.final_norm,
                         stage_.spec.model.final_norm_eps),
        head_rows_);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadLogits(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Logits(out.size(), head_rows_));
  const OutputRange own = stage_.link->outputs().vocab;
  if (head_rows_ == 0 || own.empty()) {
    return absl::OkStatus();
  }
  const size_t vocab = stage_.spec.model.vocab;
  const float divisor = stage_.spec.model.logits_divisor;
  const float cap = stage_.spec.model.final_soft_cap;
  const MatmulArgs product =
      products_.Product(stage_.weights.head, head_rows_, out.data() + own.begin, vocab, false);
  stage_.pool->Split(product.weights.panels(), [&](size_t begin, size_t end) {
    stage_.kernels->matmul(product, begin, end);
    const size_t first = begin * kLanes;
    const size_t count = std::min<size_t>(end * kLanes, own.size()) - first;
    for (uint32_t row = 0; row < head_rows_ && (divisor != 1 || cap != 0); ++row) {
      float* const logits = out.data() + row * vocab + own.begin + first;
      if (divisor != 1) {
        std::for_each(logits, logits + count, [divisor](float& x) { x /= divisor; });
      }
      if (cap != 0) {
        stage_.kernels->soft_cap(logits, count, cap);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuShard::CopyPage(uint32_t group, PageId from, PageId to) {
  RETURN_IF_ERROR(calls_.CopyPage(group, from, to));
  if (from != to) {
    stage_.kv.CopyPage(group, from, to);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) {
  RETURN_IF_ERROR(calls_.PageOf(group, page, PageBytes(group), out.size()));
  stage_.kv.ReadPage(group, page, out.data());
  return absl::OkStatus();
}

absl::Status CpuShard::WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) {
  RETURN_IF_ERROR(calls_.PageOf(group, page, PageBytes(group), in.size()));
  stage_.kv.WritePage(group, page, in.data());
  return absl::OkStatus();
}

void CpuShard::ForPageParts(uint32_t group,
                            const std::function<void(size_t, size_t, size_t, size_t)>& copy) const {
  const std::vector<RankOutputs>& ranks = stage_.link->ranks();
  size_t whole = 0;
  std::vector<size_t> at(ranks.size());
  for (uint32_t layer = stage_.spec.first_layer; layer <= stage_.spec.last_layer; ++layer) {
    const AttentionSpec& attention = stage_.layer(layer).attention;
    if (attention.kv_group != group) {
      continue;
    }
    const size_t bytes = KvLayout::Of(attention, stage_.kv_f16).head_bytes;
    uint32_t all = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const OutputRange heads = ranks[rank].layers[layer].kv_heads;
      for (uint32_t head = heads.begin; head < heads.end; ++head) {
        copy(rank, at[rank], whole + head * bytes, bytes);
        at[rank] += bytes;
      }
      all = std::max(all, heads.end);
    }
    whole += all * bytes;
  }
}

}  // namespace strata::cpu
