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

// A failed precondition of a call is a mistake of the runner's, never of a request.
absl::Status Misuse(const std::string& message) {
  return Error(absl::StatusCode::kInternal, "SHARD_MISUSE", message);
}

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

CpuShard::CpuShard(const StageSpec& spec, const Kernels* kernels, std::shared_ptr<ThreadPool> pool)
    : stage_(spec, kernels, std::move(pool)),
      rotary_variants_(RotaryVariants(spec.model)),
      products_(stage_),
      residual_(stage_, &products_),
      attention_(stage_, &products_, &residual_),
      mlp_(stage_, &products_, &residual_),
      mixture_(stage_, &products_, &residual_, &mlp_) {
  for (uint32_t group = 0; group < spec.model.kv_groups.size(); ++group) {
    const auto begin = spec.model.layers.begin();
    if (std::any_of(begin + spec.first_layer, begin + spec.last_layer + 1,
                    [&](const LayerSpec& layer) { return layer.attention.kv_group == group; })) {
      groups_.push_back(group);
    }
  }
}

absl::StatusOr<std::unique_ptr<CpuShard>> CpuShard::Create(
    const StageSpec& spec, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how,
    std::shared_ptr<ThreadPool> pool) {
  std::unique_ptr<CpuShard> shard(new CpuShard(spec, kernels, std::move(pool)));
  WeightLoader loader(shard->stage_.spec, source, packed, how.placer, how.may_map,
                      &shard->stage_.weights);
  RETURN_IF_ERROR(loader.Check());
  RETURN_IF_ERROR(CheckAvailable(loader.packed_bytes() +
                                 KvCache::Bytes(spec, shard->stage_.kv_f16) +
                                 shard->stage_.sizes.Bytes()));
  RETURN_IF_ERROR(loader.Load(*kernels, how.threads, progress));
  RETURN_IF_ERROR(shard->Allocate());
  if (const auto& mapped = shard->stage_.weights.mapped; !mapped.empty()) {
    shard->mover_ = std::make_unique<PageMover>(mapped, how.moved);
  }
  return shard;
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
  if (pages.size() != stage_.spec.kv_pages.size()) {
    return Misuse("KV pages for another number of groups");
  }
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
         residual_.bytes() + attention_.bytes() + mlp_.bytes() + mixture_.bytes();
}

absl::Status CpuShard::CheckItem(const BatchItem& item, uint32_t first_row) const {
  if (item.first_row != first_row || item.rows == 0) {
    return Misuse("the items of a batch do not cover its rows in order");
  }
  if (item.rows > stage_.spec.context || item.position > stage_.spec.context - item.rows) {
    return Misuse(absl::StrCat("position ", item.position, " + ", item.rows,
                               " rows is past the context of ", stage_.spec.context));
  }
  if (item.rotary_variant >= rotary_variants_) {
    return Misuse("a rotary variant that the model does not have");
  }
  if (item.tables.size() != stage_.spec.model.kv_groups.size()) {
    return Misuse("an item has not one page table for each KV group");
  }
  const uint32_t pages = (item.position + item.rows + kPageTokens - 1) / kPageTokens;
  for (const uint32_t group : groups_) {
    const PageTableView& table = item.tables[group];
    const uint32_t window = stage_.spec.model.kv_groups[group].window;
    const uint32_t first = FirstSeen(item.position, window) / kPageTokens;
    if (table.first_page > first || table.pages.size() < pages - table.first_page) {
      return Misuse("a page table does not cover its item");
    }
    for (uint32_t p = first - table.first_page; p < pages - table.first_page; ++p) {
      if (table.pages[p] >= stage_.spec.kv_pages[group]) {
        return Misuse(absl::StrCat("page ", table.pages[p], " does not exist"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CpuShard::Begin(const Batch& batch) {
  stage_.batch = Batch{};
  head_rows_ = 0;
  if (batch.rows > stage_.spec.max_batch_tokens ||
      batch.items.size() > stage_.spec.max_batch_items) {
    return Misuse(absl::StrCat("a batch of ", batch.rows, " rows and ", batch.items.size(),
                               " items, loaded for ", stage_.spec.max_batch_tokens, " and ",
                               stage_.spec.max_batch_items));
  }
  uint32_t rows = 0;
  for (const BatchItem& item : batch.items) {
    RETURN_IF_ERROR(CheckItem(item, rows));
    rows += item.rows;
  }
  if (rows != batch.rows) {
    return Misuse("the items of a batch do not cover its rows");
  }
  stage_.batch = batch;
  return absl::OkStatus();
}

absl::Status CpuShard::Embed() {
  if (!stage_.spec.embeds || stage_.batch.token_ids.size() != stage_.batch.rows) {
    return Misuse("nothing to embed with");
  }
  for (const uint32_t id : stage_.batch.token_ids) {
    if (id >= stage_.spec.model.vocab) {
      return Misuse(absl::StrCat("token ", id, " is not in the vocabulary"));
    }
  }
  residual_.Embed();
  return absl::OkStatus();
}

absl::Status CpuShard::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  const size_t hidden = stage_.spec.model.hidden;
  if (!stage_.spec.embeds || values.size() != rows.size() * hidden) {
    return Misuse("input embeddings of another size than their rows, or nothing is embedded here");
  }
  const float scale = stage_.spec.model.input_embedding_scale;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= stage_.batch.rows) {
      return Misuse("an input embedding for a row that the batch does not have");
    }
    std::transform(values.begin() + i * hidden, values.begin() + (i + 1) * hidden,
                   residual_.row(rows[i]), [scale](float x) { return scale == 1 ? x : x * scale; });
  }
  return absl::OkStatus();
}

absl::Status CpuShard::SetResidual(std::span<const float> values) {
  const size_t hidden = stage_.spec.model.hidden;
  if (values.size() != stage_.batch.rows * hidden) {
    return Misuse("a residual stream of another size than the batch's");
  }
  for (size_t row = 0; row < stage_.batch.rows; ++row) {
    std::memcpy(residual_.row(row), values.data() + row * hidden, hidden * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadResidual(std::span<float> out) {
  const size_t hidden = stage_.spec.model.hidden;
  if (out.size() != stage_.batch.rows * hidden) {
    return Misuse("a residual stream of another size than the batch's");
  }
  for (size_t row = 0; row < stage_.batch.rows; ++row) {
    std::memcpy(out.data() + row * hidden, residual_.row(row), hidden * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::CheckLayer(uint32_t layer) const {
  if (layer < stage_.spec.first_layer || layer > stage_.spec.last_layer) {
    return Misuse(absl::StrCat("layer ", layer, " is not of this stage"));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::CheckKept(uint32_t layer, std::span<const uint32_t> rows) const {
  if (!stage_.spec.heads || layer != stage_.spec.last_layer) {
    return Misuse("rows are left out before the last layer");
  }
  auto row = rows.begin();
  for (const BatchItem& item : stage_.batch.items) {
    const uint32_t end = item.first_row + item.rows;
    if (row != rows.end() && *row >= item.first_row) {
      for (uint32_t next = *row; row != rows.end() && *row == next && next < end; ++next) {
        ++row;
      }
    }
  }
  return row == rows.end() ? absl::OkStatus()
                           : Misuse("rows to keep that the batch does not have, or with a gap");
}

absl::Status CpuShard::Attention(uint32_t layer) {
  RETURN_IF_ERROR(CheckLayer(layer));
  if (stage_.batch.rows > 0) {
    attention_.Compute(layer);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(CheckKept(layer, rows));
  if (stage_.batch.rows == 0) {
    return absl::OkStatus();
  }
  attention_.AppendKeysAndValues(layer, /*queries=*/!rows.empty());
  KeepRows(rows);
  if (stage_.batch.rows > 0) {
    attention_.Finish(layer);
  }
  return absl::OkStatus();
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
  RETURN_IF_ERROR(CheckLayer(layer));
  const LayerSpec& spec = stage_.layer(layer);
  const LayerWeights& weights = stage_.layer_weights(layer);
  if (stage_.batch.rows == 0) {
    return absl::OkStatus();
  }
  if (spec.mlp.experts != 0) {
    mixture_.Compute(spec, weights);
  } else {
    mlp_.Compute(spec, weights);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::Head(std::span<const uint32_t> rows) {
  if (!stage_.spec.heads || rows.size() > stage_.batch.rows) {
    return Misuse("no head here, or more rows than the batch has");
  }
  head_rows_ = static_cast<uint32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= stage_.batch.rows) {
      return Misuse("a row that the batch does not have");
    }
    std::memcpy(products_.normed() + i * stage_.sizes.hidden, residual_.row(rows[i]),
                stage_.sizes.hidden * sizeof(float));
  }
  if (head_rows_ > 0) {
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
  if (out.size() != size_t{head_rows_} * stage_.spec.model.vocab) {
    return Misuse("logits of another size than Head's rows");
  }
  if (head_rows_ == 0) {
    return absl::OkStatus();
  }
  const size_t vocab = stage_.spec.model.vocab;
  const float divisor = stage_.spec.model.logits_divisor;
  const float cap = stage_.spec.model.final_soft_cap;
  const MatmulArgs product =
      products_.Product(stage_.weights.head, head_rows_, out.data(), vocab, false);
  stage_.pool->Split(product.weights.panels(), [&](size_t begin, size_t end) {
    stage_.kernels->matmul(product, begin, end);
    const size_t first = begin * kLanes;
    const size_t count = std::min(end * kLanes, vocab) - first;
    for (uint32_t row = 0; row < head_rows_ && (divisor != 1 || cap != 0); ++row) {
      float* const logits = out.data() + row * vocab + first;
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
  if (group >= stage_.spec.kv_pages.size() || from >= stage_.spec.kv_pages[group] ||
      to >= stage_.spec.kv_pages[group]) {
    return Misuse("a page that does not exist");
  }
  if (from != to) {
    stage_.kv.CopyPage(group, from, to);
  }
  return absl::OkStatus();
}

}  // namespace strata::cpu
