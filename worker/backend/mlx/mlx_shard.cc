#include "worker/backend/mlx/mlx_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/footprint/mlx_limits.h"
#include "common/limits.h"
#include "common/numerics/math.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "mlx/ops.h"
#include "mlx/stream.h"
#include "mlx/transforms.h"
#include "worker/backend/mlx/guard.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Rows of a span that are attended at once, whatever their scores take.
constexpr uint32_t kMostTileRows = 128;

mx::array RowsFrom(std::span<const float> values, size_t width) {
  return mx::array(values.data(),
                   {static_cast<int>(values.size() / width), static_cast<int>(width)}, mx::float32);
}

// Asked before memory is touched: an allocation that the system cannot back kills later.
absl::Status CheckAvailable(uint64_t needed) {
  const uint64_t available = AvailableMemoryBytes();
  if (available != 0 && needed > available) {
    return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                 absl::StrCat("the stage needs ", FormatSize(needed), " where ",
                              FormatSize(available), " are available"))
        .Limit(absl::StrCat("available=", FormatSize(available)))
        .Hint("load fewer layers or fewer KV tokens on this node");
  }
  return absl::OkStatus();
}

}  // namespace

MlxShard::MlxShard(const StageSpec& spec, RowBlocks blocks)
    : spec_(spec), blocks_(blocks), calls_(&spec_) {}

absl::StatusOr<std::unique_ptr<MlxShard>> MlxShard::Create(const StageSpec& spec,
                                                           const TensorSource& source,
                                                           PackedStore* packed,
                                                           const LoadProgressFn& progress,
                                                           RowBlocks blocks) {
  std::unique_ptr<MlxShard> shard(new MlxShard(spec, blocks));
  ArrayLoader loader(shard->spec_, source, packed, &shard->arrays_);
  RETURN_IF_ERROR(loader.Check());
  RETURN_IF_ERROR(
      CheckAvailable(loader.bytes() + KvArrays::Bytes(spec) + spec.rotary.size_bytes()));
  RETURN_IF_ERROR(loader.Load(progress));
  RETURN_IF_ERROR(shard->kv_.Allocate(shard->spec_));
  RETURN_IF_ERROR(Guarded("the rotary tables", [&] {
    if (!spec.rotary.empty()) {
      shard->rotary_ =
          mx::array(spec.rotary.data(), {static_cast<int>(spec.rotary.size())}, mx::float32);
    }
    return absl::OkStatus();
  }));
  shard->spec_.rotary = {};
  return shard;
}

uint64_t MlxShard::MemoryBytes() const {
  return arrays_.bytes + kv_.bytes() + (rotary_.has_value() ? rotary_->nbytes() : 0);
}

absl::Status MlxShard::ResizeKv(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(calls_.ResizeKv(pages));
  batch_ = Batch{};
  residual_.reset();
  logits_.reset();
  DropPlan();
  spec_.kv_pages.assign(pages.begin(), pages.end());
  const absl::Status status = kv_.Allocate(spec_);
  if (!status.ok()) {
    spec_.kv_pages.assign(pages.size(), 0);
  }
  return status;
}

void MlxShard::DropPlan() {
  slots_.clear();
  spans_.clear();
  rotations_.clear();
}

absl::Status MlxShard::Begin(const Batch& batch) {
  batch_ = Batch{};
  residual_.reset();
  logits_.reset();
  head_rows_ = 0;
  graph_bytes_ = 0;
  DropPlan();
  kv_.Recover();  // From a step of which nothing was read.
  RETURN_IF_ERROR(calls_.Begin(batch));
  batch_ = batch;
  return absl::OkStatus();
}

absl::Status MlxShard::Embed() {
  RETURN_IF_ERROR(calls_.Embed(batch_.token_ids, batch_.rows));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded("the embedding", [&] {
    const MatrixArrays& matrix =
        arrays_.embedding.weight.has_value() ? arrays_.embedding : arrays_.head.matrix;
    residual_ = RowsOf(matrix, Indices(batch_.token_ids));
    if (const float scale = spec_.model.embedding_scale; scale != 1) {
      residual_ = *residual_ * mx::array(scale);
    }
    return absl::OkStatus();
  });
}

absl::Status MlxShard::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  RETURN_IF_ERROR(calls_.EmbedInputs(rows, values.size(), batch_.rows));
  if (rows.empty()) {
    return absl::OkStatus();
  }
  return Guarded("input embeddings", [&] {
    mx::array given = RowsFrom(values, spec_.model.hidden);
    if (const float scale = spec_.model.input_embedding_scale; scale != 1) {
      given = given * mx::array(scale);
    }
    residual_ = mx::scatter(*residual_, Indices(rows), mx::expand_dims(given, 1), 0);
    return absl::OkStatus();
  });
}

absl::Status MlxShard::SetResidual(std::span<const float> values) {
  RETURN_IF_ERROR(calls_.Residual(values.size(), batch_.rows));
  return Guarded("the residual stream", [&] {
    if (batch_.rows > 0) {
      residual_ = RowsFrom(values, spec_.model.hidden);
    }
    return absl::OkStatus();
  });
}

std::vector<uint32_t> MlxShard::Positions() const {
  std::vector<uint32_t> positions;
  positions.reserve(batch_.rows);
  for (const BatchItem& item : batch_.items) {
    for (uint32_t row = 0; row < item.rows; ++row) {
      positions.push_back(item.position + row);
    }
  }
  return positions;
}

const mx::array& MlxShard::SlotsOf(uint32_t group) {
  const auto found = slots_.find(group);
  if (found != slots_.end()) {
    return found->second;
  }
  std::vector<uint32_t> slots;
  slots.reserve(batch_.rows);
  for (const BatchItem& item : batch_.items) {
    const PageTableView& table = item.tables[group];
    for (uint32_t row = 0; row < item.rows; ++row) {
      const uint32_t position = item.position + row;
      const PageId page = table.pages[position / kPageTokens - table.first_page];
      slots.push_back(page * kPageTokens + position % kPageTokens);
    }
  }
  return slots_.emplace(group, Indices(slots)).first->second;
}

const std::vector<SpanArrays>& MlxShard::SpansOf(uint32_t group) {
  const auto found = spans_.find(group);
  if (found != spans_.end()) {
    return found->second;
  }
  const uint32_t window = spec_.model.kv_groups[group].window;
  std::vector<SpanArrays> spans;
  for (KeySpan& span : KeySpansOf(batch_.items, group, window)) {
    spans.push_back(ArraysOf(std::move(span), window));
  }
  return spans_.emplace(group, std::move(spans)).first->second;
}

const Rotation& MlxShard::RotationOf(uint32_t layer) {
  const uint64_t begin = RotaryOffset(spec_.model, layer, 0, spec_.context);
  const auto found = rotations_.find(begin);
  if (found != rotations_.end()) {
    return found->second;
  }
  const uint64_t half = this->layer(layer).attention.rope.rotary_dim / 2;
  const uint64_t second = RotaryOffset(spec_.model, layer, 1, spec_.context);
  const int rows = static_cast<int>((begin == second ? 2 : 4) * spec_.context);
  const mx::array table =
      mx::reshape(mx::slice(*rotary_, {static_cast<int>(begin)},
                            {static_cast<int>(begin + static_cast<uint64_t>(rows) * half)}),
                  {rows, static_cast<int>(half)});
  std::vector<uint32_t> at = Positions();
  for (const BatchItem& item : batch_.items) {
    for (uint32_t row = item.first_row; row < item.first_row + item.rows; ++row) {
      at[row] += item.rotary_variant != 0 ? static_cast<uint32_t>((second - begin) / half) : 0;
    }
  }
  const mx::array cosine_rows = Indices(at);
  const mx::array sine_rows = cosine_rows + mx::array(static_cast<int>(spec_.context));
  const auto take = [&](const mx::array& of) { return mx::expand_dims(mx::take(table, of, 0), 1); };
  return rotations_.emplace(begin, Rotation{take(cosine_rows), take(sine_rows)}).first->second;
}

MlxShard::Projected MlxShard::Project(uint32_t index, bool queries) {
  const LayerSpec& spec = layer(index);
  const AttentionSpec& attention = spec.attention;
  const LayerArrays& weights = arrays(index);
  const int rows = static_cast<int>(batch_.rows);
  const mx::array inputs = weights.attention_norm.has_value()
                               ? Normed(*residual_, *weights.attention_norm, spec.norm_eps)
                               : *residual_;
  // A head at a time, or all at once: as wide as the weight.
  const auto heads_of = [&](mx::array x, const std::optional<mx::array>& norm, uint32_t heads) {
    const mx::Shape by_head = {rows, static_cast<int>(heads), static_cast<int>(attention.head_dim)};
    if (attention.qk_norm == QkNorm::kProjection) {
      x = Normed(x, *norm, spec.norm_eps);
    }
    x = mx::reshape(x, by_head);
    if (attention.qk_norm == QkNorm::kHead) {
      x = Normed(x, *norm, spec.norm_eps);
    }
    return attention.rotates ? Rotated(x, RotationOf(index), attention.rotates_neighbours) : x;
  };
  const int keys = static_cast<int>(attention.kv_heads * attention.head_dim);
  Projected projected = {std::nullopt,
                         mx::reshape(heads_of(Multiply(blocks_, inputs, weights.k), weights.k_norm,
                                              attention.kv_heads),
                                     {rows, keys}),
                         Multiply(blocks_, inputs, weights.v)};
  if (!queries) {
    return projected;
  }
  projected.queries =
      heads_of(Multiply(blocks_, inputs, weights.q), weights.q_norm, attention.heads);
  if (attention.query_growth != 0) {
    std::vector<float> grown;
    for (const uint32_t position : Positions()) {
      grown.push_back(
          static_cast<float>(1.0 + double{attention.query_growth} *
                                       LogF64(1.0 + position / attention.query_growth_every)));
    }
    projected.queries = *projected.queries * mx::array(grown.data(), {rows, 1, 1}, mx::float32);
  }
  return projected;
}

absl::StatusOr<mx::array> MlxShard::AttendRows(uint32_t index, const mx::array& queries) {
  const AttentionSpec& attention = layer(index).attention;
  const uint32_t local = index - spec_.first_layer;
  const int heads = static_cast<int>(attention.heads);
  const int width = static_cast<int>(attention.head_dim);
  const uint32_t most = blocks_.rows == 0 ? kMostTileRows : static_cast<uint32_t>(blocks_.rows);
  std::vector<mx::array> parts;
  for (const SpanArrays& span : SpansOf(attention.kv_group)) {
    const SpanKv kv =
        KvOf(attention, span, kv_.Keys(local, span.pages), kv_.Values(local, span.pages));
    uint64_t bytes = uint64_t{span.span.keys} * attention.KvNumbers() * 2 * sizeof(float);
    const uint32_t tile = TileRows(attention, span.span, kMlxScoreBytes, most);
    for (uint32_t done = 0; done < span.span.rows; done += tile) {
      const uint32_t rows = std::min(tile, span.span.rows - done);
      const int first = static_cast<int>(span.span.first_row + done);
      const mx::array q =
          mx::slice(queries, {first, 0, 0}, {first + static_cast<int>(rows), heads, width});
      ASSIGN_OR_RETURN(mx::array attended,
                       Attended(attention, span, done, rows, q, kv, arrays(index).sinks));
      bytes += 3 * uint64_t{rows} * attention.heads * span.span.keys * sizeof(float);
      parts.push_back(std::move(attended));
      if (graph_bytes_ + bytes > kMlxGraphBytes) {
        RETURN_IF_ERROR(Evaluate({parts.back(), queries}));
        bytes = 0;
      }
    }
    graph_bytes_ += bytes;
  }
  return parts.size() == 1 ? parts.front() : mx::concatenate(parts, 0);
}

void MlxShard::AddBranch(const LayerSpec& layer, const mx::array& branch,
                         const std::optional<mx::array>& after) {
  mx::array added = after.has_value() ? Normed(branch, *after, layer.norm_eps) : branch;
  if (layer.branch_scale != 1) {
    added = added * mx::array(layer.branch_scale);
  }
  residual_ = *residual_ + added;
}

absl::Status MlxShard::FinishAttention(uint32_t index, const mx::array& queries) {
  const LayerArrays& weights = arrays(index);
  ASSIGN_OR_RETURN(const mx::array attended, AttendRows(index, queries));
  AddBranch(layer(index), Multiply(blocks_, attended, weights.o), weights.after_attention_norm);
  const AttentionSpec& attention = layer(index).attention;
  const uint64_t row = 6 * uint64_t{attention.heads} * attention.head_dim +
                       4 * attention.KvNumbers() + 4 * uint64_t{spec_.model.hidden};
  return Account(batch_.rows * row * sizeof(float));
}

absl::Status MlxShard::Attention(uint32_t index) {
  RETURN_IF_ERROR(calls_.Layer(index));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded(absl::StrCat("attention of layer ", index), [&] {
    const Projected projected = Project(index, /*queries=*/true);
    kv_.Append(index - spec_.first_layer, SlotsOf(layer(index).attention.kv_group), projected.keys,
               projected.values);
    return FinishAttention(index, *projected.queries);
  });
}

absl::Status MlxShard::AttentionOfSome(uint32_t index, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.AttentionOfSome(index, rows, batch_.items));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded(absl::StrCat("attention of layer ", index), [&]() -> absl::Status {
    const Projected projected = Project(index, /*queries=*/!rows.empty());
    kv_.Append(index - spec_.first_layer, SlotsOf(layer(index).attention.kv_group), projected.keys,
               projected.values);
    KeepRows(rows);
    if (rows.empty()) {
      return absl::OkStatus();
    }
    return FinishAttention(index, mx::take(*projected.queries, Indices(rows), 0));
  });
}

void MlxShard::KeepRows(std::span<const uint32_t> rows) {
  std::vector<BatchItem> kept;
  const BatchItem* item = batch_.items.data();
  for (uint32_t to = 0; to < rows.size(); ++to) {
    const uint32_t row = rows[to];
    while (row >= item->first_row + item->rows) {
      ++item;
    }
    if (to > 0 && rows[to - 1] >= item->first_row) {
      ++kept.back().rows;
    } else {
      kept.push_back(
          {to, 1, item->position + row - item->first_row, item->tables, item->rotary_variant});
    }
  }
  kept_ = std::move(kept);
  if (rows.empty()) {
    residual_.reset();
  } else {
    residual_ = mx::take(*residual_, Indices(rows), 0);
  }
  batch_ = {.rows = static_cast<uint32_t>(rows.size()), .token_ids = {}, .items = kept_};
  DropPlan();
}

absl::Status MlxShard::Mlp(uint32_t index) {
  RETURN_IF_ERROR(calls_.Layer(index));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded(absl::StrCat("the MLP of layer ", index), [&] {
    const LayerSpec& spec = layer(index);
    const LayerArrays& weights = arrays(index);
    const mx::array inputs = weights.mlp_norm.has_value()
                                 ? Normed(*residual_, *weights.mlp_norm, spec.norm_eps)
                                 : *residual_;
    const mx::array gated = Gated(spec.mlp, Multiply(blocks_, inputs, weights.gate),
                                  Multiply(blocks_, inputs, weights.up));
    AddBranch(spec, Multiply(blocks_, gated, weights.down), weights.after_mlp_norm);
    return Account(batch_.rows * (6 * uint64_t{spec.mlp.ffn} + 4 * uint64_t{spec_.model.hidden}) *
                   sizeof(float));
  });
}

absl::Status MlxShard::Account(uint64_t bytes) {
  graph_bytes_ += bytes;
  return graph_bytes_ > kMlxGraphBytes ? Evaluate({}) : absl::OkStatus();
}

absl::Status MlxShard::Evaluate(std::vector<mx::array> more) {
  graph_bytes_ = 0;
  if (residual_.has_value()) {
    more.push_back(*residual_);
  }
  kv_.AddPending(&more);
  const absl::Status status = Guarded("evaluating a step", [&] {
    mx::eval(std::move(more));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    // What was under way ends before anything is looked at.
    Guarded("the end of a step", [] {
      mx::synchronize();
      return absl::OkStatus();
    }).IgnoreError();
    kv_.Recover();
    batch_ = Batch{};
    residual_.reset();
    logits_.reset();
    head_rows_ = 0;
  }
  return status;
}

absl::Status MlxShard::Copy(const mx::array& from, std::span<float> out) {
  return Guarded("reading a step", [&] {
    mx::array whole = mx::contiguous(from);
    mx::eval(whole);
    std::memcpy(out.data(), whole.data<float>(), out.size_bytes());
    return absl::OkStatus();
  });
}

absl::Status MlxShard::ReadResidual(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Residual(out.size(), batch_.rows));
  RETURN_IF_ERROR(Evaluate({}));
  return batch_.rows == 0 ? absl::OkStatus() : Copy(*residual_, out);
}

absl::Status MlxShard::Head(std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.Head(rows, batch_.rows));
  head_rows_ = static_cast<uint32_t>(rows.size());
  logits_.reset();
  if (head_rows_ == 0) {
    return absl::OkStatus();
  }
  return Guarded("the head", [&] {
    const mx::array inputs = Normed(mx::take(*residual_, Indices(rows), 0), *arrays_.final_norm,
                                    spec_.model.final_norm_eps);
    logits_ = Multiply(blocks_, inputs, arrays_.head);
    if (const float divisor = spec_.model.logits_divisor; divisor != 1) {
      logits_ = *logits_ / mx::array(divisor);
    }
    logits_ = SoftCapped(*logits_, spec_.model.final_soft_cap);
    return absl::OkStatus();
  });
}

absl::Status MlxShard::ReadLogits(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Logits(out.size(), head_rows_));
  RETURN_IF_ERROR(
      Evaluate(logits_.has_value() ? std::vector<mx::array>{*logits_} : std::vector<mx::array>{}));
  return head_rows_ == 0 ? absl::OkStatus() : Copy(*logits_, out);
}

absl::Status MlxShard::CopyPage(uint32_t group, PageId from, PageId to) {
  RETURN_IF_ERROR(calls_.CopyPage(group, from, to));
  if (from == to) {
    return absl::OkStatus();
  }
  return Guarded("copying a page", [&] {
    kv_.CopyPage(spec_, group, from, to);
    return absl::OkStatus();
  });
}

}  // namespace strata::mlx
