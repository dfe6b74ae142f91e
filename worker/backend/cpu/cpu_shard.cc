#include "worker/backend/cpu/cpu_shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/cpu/float_environment.h"

namespace strata::cpu {
namespace {

// Queries of an attention tile: enough to share a page among, few enough to spread over threads.
constexpr uint32_t kTileQueries = 32;
// Rows that are normed or rotated faster by one thread than by waking the others.
constexpr size_t kSmallRows = 4;

uint32_t TileRows(uint32_t group) { return std::max(1u, kTileQueries / group); }

uint32_t Spans(uint32_t keys) { return (keys + kSpanKeys - 1) / kSpanKeys; }

// A failed precondition of a call is a mistake of the runner's, never of a request.
absl::Status Misuse(const std::string& message) {
  return Error(absl::StatusCode::kInternal, "SHARD_MISUSE", message);
}

// x[i], x[i + half] turned by the angles of one position; half-rotation.
void Rotate(const float* cosines, const float* sines, uint32_t half, float* x) {
  for (uint32_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace

ScratchSizes::ScratchSizes(const StageSpec& spec, uint32_t threads)
    : rows(spec.max_batch_tokens), threads(threads) {
  hidden = RoundUp(spec.model.hidden, kLanes);
  widest = spec.model.hidden;
  for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
    const LayerSpec& layer = spec.model.layers[i];
    const AttentionSpec& a = layer.attention;
    const size_t heads = size_t{a.heads} * a.head_dim;
    queries = std::max(queries, RoundUp(heads, kLanes));
    keys = std::max(keys, RoundUp(size_t{a.kv_heads} * a.head_dim, kLanes));
    ffn = std::max(ffn, RoundUp(layer.mlp.ffn, kLanes));
    widest = std::max({widest, heads, size_t{layer.mlp.ffn}});
    attend = std::max(attend, RoundUp(AttendScratchFloats(a.head_dim), kLanes));
    // See CpuShard::SplitsSpans: fewer than 2 * threads / kv_heads + 1 items.
    const size_t items = std::min<size_t>(spec.max_batch_items, 2 * threads / a.kv_heads + 1);
    partial = std::max(
        partial,
        threads == 1 ? 0 : items * a.heads * Spans(spec.context) * PartialFloats(a.head_dim));
  }
  rotary = spec.rotary.size();
}

uint64_t ScratchSizes::Bytes() const {
  const uint64_t row = 2 * hidden + widest + 2 * queries + 2 * keys + 2 * ffn;
  return sizeof(float) * (rows * row + threads * attend + partial + rotary);
}

CpuShard::CpuShard(const StageSpec& spec, const Kernels* kernels, std::shared_ptr<ThreadPool> pool)
    : spec_(spec),
      kernels_(kernels),
      pool_(std::move(pool)),
      kv_f16_(spec.kv_dtype != v1::KV_DTYPE_F32),
      sizes_(spec, pool_->threads()) {}

absl::StatusOr<std::unique_ptr<CpuShard>> CpuShard::Create(
    const StageSpec& spec, const TensorSource& source, const LoadProgressFn& progress,
    const Kernels* kernels, ThreadPool* loading, std::shared_ptr<ThreadPool> pool) {
  std::unique_ptr<CpuShard> shard(new CpuShard(spec, kernels, std::move(pool)));
  WeightLoader loader(shard->spec_, source, &shard->weights_);
  RETURN_IF_ERROR(loader.Check());
  const uint64_t needed =
      loader.packed_bytes() + KvCache::Bytes(spec, shard->kv_f16_) + shard->sizes_.Bytes();
  const uint64_t available = AvailableMemoryBytes();
  if (available != 0 && needed > available) {
    return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                 absl::StrCat("the stage needs ", FormatSize(needed), " where ",
                              FormatSize(available), " are available"))
        .Limit(absl::StrCat("available=", FormatSize(available)))
        .Hint("load fewer layers or fewer KV tokens on this node");
  }
  RETURN_IF_ERROR(loader.Load(loading, progress));
  RETURN_IF_ERROR(shard->Allocate());
  return shard;
}

absl::Status CpuShard::Allocate() {
  RETURN_IF_ERROR(kv_.Allocate(spec_, kv_f16_));
  const auto floats = [](AlignedBuffer* buffer, size_t count) {
    return buffer->Allocate(count * sizeof(float), "buffers");
  };
  const size_t rows = sizes_.rows;
  RETURN_IF_ERROR(floats(&rotary_, sizes_.rotary));
  std::memcpy(rotary_.as(), spec_.rotary.data(), spec_.rotary.size_bytes());
  RETURN_IF_ERROR(floats(&residual_, rows * sizes_.hidden));
  RETURN_IF_ERROR(floats(&normed_, rows * sizes_.hidden));
  RETURN_IF_ERROR(floats(&packed_, rows * sizes_.widest));
  RETURN_IF_ERROR(floats(&q_, rows * sizes_.queries));
  RETURN_IF_ERROR(floats(&k_, rows * sizes_.keys));
  RETURN_IF_ERROR(floats(&v_, rows * sizes_.keys));
  RETURN_IF_ERROR(floats(&attended_, rows * sizes_.queries));
  RETURN_IF_ERROR(floats(&gate_, rows * sizes_.ffn));
  RETURN_IF_ERROR(floats(&up_, rows * sizes_.ffn));
  RETURN_IF_ERROR(floats(&attend_, sizes_.threads * sizes_.attend));
  RETURN_IF_ERROR(floats(&partial_, sizes_.partial));
  tile_ends_.reserve(spec_.max_batch_items);
  return absl::OkStatus();
}

uint64_t CpuShard::MemoryBytes() const {
  uint64_t bytes = weights_.Bytes() + kv_.bytes();
  for (const AlignedBuffer* buffer : {&rotary_, &residual_, &normed_, &packed_, &q_, &k_, &v_,
                                      &attended_, &gate_, &up_, &attend_, &partial_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

absl::Status CpuShard::CheckItem(const BatchItem& item, uint32_t first_row) const {
  if (item.first_row != first_row || item.rows == 0) {
    return Misuse("the items of a batch do not cover its rows in order");
  }
  if (item.rows > spec_.context || item.position > spec_.context - item.rows) {
    return Misuse(absl::StrCat("position ", item.position, " + ", item.rows,
                               " rows is past the context of ", spec_.context));
  }
  if (item.tables.size() != spec_.model.kv_groups.size()) {
    return Misuse("an item has not one page table for each KV group");
  }
  const uint32_t pages = (item.position + item.rows + kPageTokens - 1) / kPageTokens;
  for (uint32_t i = spec_.first_layer; i <= spec_.last_layer; ++i) {
    const uint32_t group = spec_.model.layers[i].attention.kv_group;
    if (i > spec_.first_layer && group == spec_.model.layers[i - 1].attention.kv_group) {
      continue;
    }
    const PageTableView& table = item.tables[group];
    if (table.first_page != 0 || table.pages.size() < pages) {
      return Misuse("a page table does not cover its item");
    }
    for (uint32_t p = 0; p < pages; ++p) {
      if (table.pages[p] >= spec_.kv_pages[group]) {
        return Misuse(absl::StrCat("page ", table.pages[p], " does not exist"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CpuShard::Begin(const Batch& batch) {
  batch_ = Batch{};
  head_rows_ = 0;
  if (batch.rows > spec_.max_batch_tokens || batch.items.size() > spec_.max_batch_items) {
    return Misuse(absl::StrCat("a batch of ", batch.rows, " rows and ", batch.items.size(),
                               " items, loaded for ", spec_.max_batch_tokens, " and ",
                               spec_.max_batch_items));
  }
  uint32_t rows = 0;
  for (const BatchItem& item : batch.items) {
    RETURN_IF_ERROR(CheckItem(item, rows));
    rows += item.rows;
  }
  if (rows != batch.rows) {
    return Misuse("the items of a batch do not cover its rows");
  }
  batch_ = batch;
  return absl::OkStatus();
}

absl::Status CpuShard::Embed() {
  if (!spec_.embeds || batch_.token_ids.size() != batch_.rows) {
    return Misuse("nothing to embed with");
  }
  for (const uint32_t id : batch_.token_ids) {
    if (id >= spec_.model.vocab) {
      return Misuse(absl::StrCat("token ", id, " is not in the vocabulary"));
    }
  }
  pool_->Split(
      batch_.rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          float* const to = residual_.as<float>() + row * sizes_.hidden;
          if (weights_.embedding.empty()) {
            weights_.head.weight.ReadOutput(batch_.token_ids[row], to);
          } else {
            weights_.embedding.ReadRow(*kernels_, batch_.token_ids[row], to);
          }
        }
      },
      kSmallRows);
  return absl::OkStatus();
}

absl::Status CpuShard::SetResidual(std::span<const float> values) {
  const size_t hidden = spec_.model.hidden;
  if (values.size() != batch_.rows * hidden) {
    return Misuse("a residual stream of another size than the batch's");
  }
  for (size_t row = 0; row < batch_.rows; ++row) {
    std::memcpy(residual_.as<float>() + row * sizes_.hidden, values.data() + row * hidden,
                hidden * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadResidual(std::span<float> out) {
  const size_t hidden = spec_.model.hidden;
  if (out.size() != batch_.rows * hidden) {
    return Misuse("a residual stream of another size than the batch's");
  }
  for (size_t row = 0; row < batch_.rows; ++row) {
    std::memcpy(out.data() + row * hidden, residual_.as<float>() + row * sizes_.hidden,
                hidden * sizeof(float));
  }
  return absl::OkStatus();
}

void CpuShard::Pack(const float* x, size_t stride, uint32_t rows, size_t inputs) {
  const uint32_t blocks = RowBlocks(rows, kernels_->block_rows);
  pool_->Split(blocks, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const RowBlock block = RowBlockAt(rows, blocks, static_cast<uint32_t>(b));
      kernels_->pack_rows(x + block.first * stride, stride, block.count, inputs,
                          packed_.as<float>() + block.first * inputs);
    }
  });
}

void CpuShard::NormAndPack(const float* x, uint32_t rows, NormKind kind,
                           const std::vector<float>& weight, float eps) {
  const float plus = kind == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
  const size_t inputs = spec_.model.hidden;
  const size_t stride = sizes_.hidden;
  float* const normed = normed_.as<float>();
  const uint32_t blocks = RowBlocks(rows, kernels_->block_rows);
  pool_->Split(blocks, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const RowBlock block = RowBlockAt(rows, blocks, static_cast<uint32_t>(b));
      for (uint32_t r = block.first; r < block.first + block.count; ++r) {
        kernels_->rms_norm(x + r * stride, weight.data(), inputs, eps, plus, normed + r * stride);
      }
      kernels_->pack_rows(normed + block.first * stride, stride, block.count, inputs,
                          packed_.as<float>() + block.first * inputs);
    }
  });
}

MatmulArgs CpuShard::Product(const Linear& linear, uint32_t rows, float* out, size_t stride,
                             bool add) const {
  return MatmulArgs{.weights = linear.weight.view(),
                    .packed = packed_.as<float>(),
                    .rows = rows,
                    .bias = linear.bias.empty() ? nullptr : linear.bias.data(),
                    .out = out,
                    .out_stride = stride,
                    .add = add};
}

void CpuShard::Multiply(std::span<const MatmulArgs> products) {
  size_t panels = 0;
  for (const MatmulArgs& product : products) {
    panels += product.weights.panels();
  }
  pool_->Split(panels, [&](size_t begin, size_t end) {
    size_t before = 0;
    for (const MatmulArgs& product : products) {
      const size_t count = product.weights.panels();
      const size_t from = std::max(begin, before);
      const size_t to = std::min(end, before + count);
      if (from < to) {
        kernels_->matmul(product, from - before, to - before);
      }
      before += count;
    }
  });
}

absl::Status CpuShard::CheckLayer(uint32_t layer) const {
  if (layer < spec_.first_layer || layer > spec_.last_layer) {
    return Misuse(absl::StrCat("layer ", layer, " is not of this stage"));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::Attention(uint32_t layer) {
  RETURN_IF_ERROR(CheckLayer(layer));
  const uint32_t rows = batch_.rows;
  if (rows == 0) {
    return absl::OkStatus();
  }
  const LayerSpec& spec = spec_.model.layers[layer];
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  NormAndPack(residual_.as<float>(), rows, spec.norm, weights.attention_norm, spec.norm_eps);
  const std::array<MatmulArgs, 3> products = {
      Product(weights.q, rows, q_.as<float>(), sizes_.queries, false),
      Product(weights.k, rows, k_.as<float>(), sizes_.keys, false),
      Product(weights.v, rows, v_.as<float>(), sizes_.keys, false)};
  Multiply(products);
  RotateAndAppend(layer);
  Attend(layer);
  Pack(attended_.as<float>(), sizes_.queries, rows,
       size_t{spec.attention.heads} * spec.attention.head_dim);
  const std::array<MatmulArgs, 1> output = {
      Product(weights.o, rows, residual_.as<float>(), sizes_.hidden, true)};
  Multiply(output);
  return absl::OkStatus();
}

void CpuShard::AppendRow(uint32_t layer, const BatchItem& item, uint32_t row) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t position = item.position + row - item.first_row;
  const uint32_t head_dim = attention.head_dim;
  float* const q = q_.as<float>() + row * sizes_.queries;
  float* const k = k_.as<float>() + row * sizes_.keys;
  const float* const v = v_.as<float>() + row * sizes_.keys;
  if (attention.rotates) {
    const uint32_t half = attention.rope.rotary_dim / 2;
    const float* const cosines = rotary_.as<float>() + size_t{position} * half;
    const float* const sines = cosines + size_t{spec_.context} * half;
    for (uint32_t head = 0; head < attention.heads; ++head) {
      Rotate(cosines, sines, half, q + head * head_dim);
    }
    for (uint32_t head = 0; head < attention.kv_heads; ++head) {
      Rotate(cosines, sines, half, k + head * head_dim);
    }
  }
  const uint32_t local = layer - spec_.first_layer;
  const KvLayout& layout = kv_.layout(local);
  const PageId page = item.tables[attention.kv_group].pages[position / kPageTokens];
  uint8_t* const to = kv_.pages(local) + page * layout.page_bytes;
  for (uint32_t head = 0; head < attention.kv_heads; ++head) {
    kernels_->append_kv(k + head * head_dim, v + head * head_dim, head_dim, position % kPageTokens,
                        kv_f16_, to + head * layout.head_bytes, layout.value_bytes);
  }
}

void CpuShard::RotateAndAppend(uint32_t layer) {
  pool_->Split(
      batch_.rows,
      [&](size_t begin, size_t end) {
        const BatchItem* item = batch_.items.data();
        for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
          while (row >= item->first_row + item->rows) {
            ++item;
          }
          AppendRow(layer, *item, row);
        }
      },
      kSmallRows);
}

AttendArgs CpuShard::Tile(uint32_t layer, const BatchItem& item, uint32_t first, uint32_t rows,
                          uint32_t kv_head) const {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t group = attention.heads / attention.kv_heads;
  const uint32_t local = layer - spec_.first_layer;
  const KvLayout& layout = kv_.layout(local);
  const size_t at = size_t{item.first_row + first} * sizes_.queries +
                    size_t{kv_head} * group * attention.head_dim;
  return AttendArgs{.q = q_.as<float>() + at,
                    .q_stride = sizes_.queries,
                    .rows = rows,
                    .group = group,
                    .position = item.position + first,
                    .head_dim = attention.head_dim,
                    .scale = attention.scale,
                    .kv_f16 = kv_f16_,
                    .kv = kv_.pages(local) + kv_head * layout.head_bytes,
                    .page_bytes = layout.page_bytes,
                    .value_bytes = layout.value_bytes,
                    .pages = item.tables[attention.kv_group].pages.data(),
                    .out = attended_.as<float>() + at,
                    .out_stride = sizes_.queries};
}

bool CpuShard::SplitsSpans(uint32_t kv_heads) const {
  bool long_enough = false;
  for (const BatchItem& item : batch_.items) {
    if (item.rows != 1) {
      return false;
    }
    long_enough = long_enough || item.position >= 2 * kSpanKeys;
  }
  const size_t threads = pool_->threads();
  return threads > 1 && long_enough && batch_.items.size() * kv_heads < 2 * threads;
}

void CpuShard::Attend(uint32_t layer) {
  if (SplitsSpans(spec_.model.layers[layer].attention.kv_heads)) {
    AttendBySpans(layer);
  } else {
    AttendByTiles(layer);
  }
}

void CpuShard::AttendByTiles(uint32_t layer) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t tile_rows = TileRows(attention.heads / attention.kv_heads);
  tile_ends_.clear();
  uint32_t tiles = 0;
  for (const BatchItem& item : batch_.items) {
    tiles += (item.rows + tile_rows - 1) / tile_rows;
    tile_ends_.push_back(tiles);
  }
  // Dealt out in turns: later tiles of an item have more keys to see.
  const uint32_t units = tiles * attention.kv_heads;
  const uint32_t threads = pool_->threads();
  const auto work = [&](uint32_t thread) {
    for (uint32_t unit = thread; unit < units; unit += threads) {
      const uint32_t tile = unit % tiles;
      const size_t index =
          std::upper_bound(tile_ends_.begin(), tile_ends_.end(), tile) - tile_ends_.begin();
      const BatchItem& item = batch_.items[index];
      const uint32_t first = (tile - (index == 0 ? 0 : tile_ends_[index - 1])) * tile_rows;
      AttendArgs args =
          Tile(layer, item, first, std::min(tile_rows, item.rows - first), unit / tiles);
      args.scratch = attend_.as<float>() + thread * sizes_.attend;
      kernels_->attend(args);
    }
  };
  pool_->Run(work);
}

void CpuShard::AttendBySpans(uint32_t layer) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t group = attention.heads / attention.kv_heads;
  const uint32_t items = static_cast<uint32_t>(batch_.items.size());
  const uint32_t spans = Spans(spec_.context);
  const uint32_t pairs = items * attention.kv_heads;
  const size_t pair_floats = size_t{group} * spans * PartialFloats(attention.head_dim);
  const auto tile = [&](uint32_t pair, uint32_t thread) {
    AttendArgs args =
        Tile(layer, batch_.items[pair / attention.kv_heads], 0, 1, pair % attention.kv_heads);
    args.scratch = attend_.as<float>() + thread * sizes_.attend;
    args.partial = partial_.as<float>() + pair * pair_floats;
    args.partial_spans = spans;
    return args;
  };
  uint32_t most = 0;
  for (const BatchItem& item : batch_.items) {
    most = std::max(most, Spans(item.position + 1));
  }
  const uint32_t threads = pool_->threads();
  pool_->Run([&](uint32_t thread) {
    for (uint32_t unit = thread; unit < pairs * most; unit += threads) {
      AttendArgs args = tile(unit / most, thread);
      args.first_span = unit % most;
      args.end_span = args.first_span + 1;
      if (args.first_span < Spans(args.position + 1)) {
        kernels_->attend(args);
      }
    }
  });
  pool_->Run([&](uint32_t thread) {
    for (uint32_t pair = thread; pair < pairs; pair += threads) {
      kernels_->merge_spans(tile(pair, thread));
    }
  });
}

absl::Status CpuShard::Mlp(uint32_t layer) {
  RETURN_IF_ERROR(CheckLayer(layer));
  const uint32_t rows = batch_.rows;
  if (rows == 0) {
    return absl::OkStatus();
  }
  const LayerSpec& spec = spec_.model.layers[layer];
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  NormAndPack(residual_.as<float>(), rows, spec.norm, weights.mlp_norm, spec.norm_eps);
  const MatmulArgs gate = Product(weights.gate, rows, gate_.as<float>(), sizes_.ffn, false);
  const MatmulArgs up = Product(weights.up, rows, up_.as<float>(), sizes_.ffn, false);
  pool_->Split(gate.weights.panels(), [&](size_t begin, size_t end) {
    kernels_->matmul(gate, begin, end);
    kernels_->matmul(up, begin, end);
    const size_t first = begin * kLanes;
    const size_t count = std::min<size_t>(end * kLanes, spec.mlp.ffn) - first;
    for (uint32_t row = 0; row < rows; ++row) {
      float* const g = gate.out + row * sizes_.ffn + first;
      kernels_->swiglu(g, up.out + row * sizes_.ffn + first, count, g);
    }
  });
  Pack(gate_.as<float>(), sizes_.ffn, rows, spec.mlp.ffn);
  const std::array<MatmulArgs, 1> down = {
      Product(weights.down, rows, residual_.as<float>(), sizes_.hidden, true)};
  Multiply(down);
  return absl::OkStatus();
}

absl::Status CpuShard::Head(std::span<const uint32_t> rows) {
  if (!spec_.heads || rows.size() > batch_.rows) {
    return Misuse("no head here, or more rows than the batch has");
  }
  head_rows_ = static_cast<uint32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= batch_.rows) {
      return Misuse("a row that the batch does not have");
    }
    std::memcpy(normed_.as<float>() + i * sizes_.hidden,
                residual_.as<float>() + rows[i] * sizes_.hidden, sizes_.hidden * sizeof(float));
  }
  if (head_rows_ > 0) {
    NormAndPack(normed_.as<float>(), head_rows_, spec_.model.final_norm, weights_.final_norm,
                spec_.model.final_norm_eps);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadLogits(std::span<float> out) {
  if (out.size() != size_t{head_rows_} * spec_.model.vocab) {
    return Misuse("logits of another size than Head's rows");
  }
  if (head_rows_ > 0) {
    const std::array<MatmulArgs, 1> product = {
        Product(weights_.head, head_rows_, out.data(), spec_.model.vocab, false)};
    Multiply(product);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::CopyPage(uint32_t group, PageId from, PageId to) {
  if (group >= spec_.kv_pages.size() || from >= spec_.kv_pages[group] ||
      to >= spec_.kv_pages[group]) {
    return Misuse("a page that does not exist");
  }
  if (from != to) {
    kv_.CopyPage(group, from, to);
  }
  return absl::OkStatus();
}

}  // namespace strata::cpu
