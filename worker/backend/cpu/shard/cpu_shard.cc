#include "worker/backend/cpu/shard/cpu_shard.h"

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
#include "worker/backend/cpu/threads/float_environment.h"

namespace strata::cpu {
namespace {

// Rows that each thread quantizes for itself. No more, since all threads have memory for them: what
// a planner counts for them, and for as many threads, is in coordinator/planner/stage_overhead.cc.
constexpr uint32_t kOwnRows = 8;

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

ScratchSizes::ScratchSizes(const StageSpec& spec, const Kernels& kernels, uint32_t threads)
    : rows(spec.max_batch_tokens),
      own_rows(std::min({spec.max_batch_tokens, kernels.block_rows.alone, kOwnRows})),
      gated_rows(std::min(spec.max_batch_tokens, kernels.block_rows.alone)),
      threads(threads) {
  hidden = RoundUp(spec.model.hidden, kLanes);
  const auto packs = [&](size_t inputs, size_t times) {
    packed = std::max(packed, times * inputs);
    if (spec.activations == v1::ACTIVATIONS_INT8) {
      int8 = std::max(int8, times * kernels.quantized_row_bytes(inputs));
    }
  };
  packs(spec.model.hidden, 1);
  for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
    const LayerSpec& layer = spec.model.layers[i];
    const AttentionSpec& a = layer.attention;
    const size_t heads = std::max<size_t>(size_t{a.heads} * a.head_dim, a.OutputInputs());
    const LatentSpec& latent = a.latent;
    const bool kept = latent.rank != 0;
    const size_t key_dim = kept ? latent.kept() : a.head_dim;
    const size_t value_dim = kept ? latent.rank : a.head_dim;
    queries = std::max(queries, RoundUp(heads, kLanes));
    keys = std::max(keys, RoundUp(a.kv_heads * key_dim, kLanes));
    values = std::max(values, kept ? 0 : RoundUp(a.kv_heads * value_dim, kLanes));
    query_rank = std::max(query_rank, RoundUp(latent.query_rank, kLanes));
    absorbed = std::max(absorbed, kept ? RoundUp(a.heads * key_dim, kLanes) : 0);
    summed = std::max(summed, kept ? RoundUp(a.heads * value_dim, kLanes) : 0);
    const size_t attended = std::max<size_t>(heads, latent.query_rank);
    packs(attended, 1);
    if (layer.norm_places != NormPlaces::kBefore || layer.branch_scale != 1 ||
        layer.mlp.experts != 0) {
      branch = hidden;
    }
    if (layer.mlp.experts != 0) {
      experts = std::max(experts, RoundUp(layer.mlp.experts, kLanes));
      expert_ffn = std::max(expert_ffn, RoundUp(layer.mlp.ffn, kLanes));
      most_used = std::max<size_t>(most_used, layer.mlp.router.used);
      packs(std::max(spec.model.hidden, layer.mlp.ffn), layer.mlp.router.used);
    }
    const uint32_t dense = layer.mlp.experts != 0 ? layer.mlp.shared_ffn : layer.mlp.ffn;
    ffn = std::max(ffn, RoundUp(dense, kLanes));
    packs(dense, 1);
    if (spec.activations == v1::ACTIVATIONS_INT8) {
      const size_t own = std::max<size_t>(spec.model.hidden, attended);
      own_int8 = std::max(own_int8, kernels.quantized_row_bytes(own));
      gated = std::max(gated, kernels.quantized_row_bytes(dense));
    }
    attend = std::max(attend, RoundUp(AttendScratchFloats(key_dim, latent.rank), kLanes));
    if (kept) {
      // CpuShard::MultiplyHeads packs a block of rows of one head there.
      const size_t inputs = std::max(latent.nope_dim, latent.rank);
      attend = std::max(attend, RoundUp(kernels.block_rows.alone * inputs, kLanes));
    }
    const size_t items = std::min<size_t>(spec.max_batch_items,
                                          MostItemsBySpans(threads, a.heads / cpu::HeadsAtOnce(a)));
    partial = std::max(partial, items * a.heads * SpansOf(spec.context) * PartialFloats(value_dim));
  }
  within = std::max(ffn, most_used * expert_ffn);
  rotary = spec.rotary.size();
}

uint64_t ScratchSizes::Bytes() const {
  const uint64_t row = hidden + branch + packed + 2 * queries + keys + values + query_rank +
                       absorbed + summed + 2 * within + 2 * experts + most_used * hidden;
  return sizeof(float) * (rows * row + Normed() + threads * attend + partial + rotary) + Int8() +
         gated_rows * gated;
}

CpuShard::CpuShard(const StageSpec& spec, const Kernels* kernels, std::shared_ptr<ThreadPool> pool)
    : spec_(spec),
      kernels_(kernels),
      pool_(std::move(pool)),
      kv_f16_(spec.kv_dtype != v1::KV_DTYPE_F32),
      sizes_(spec, *kernels, pool_->threads()),
      rotary_variants_(RotaryVariants(spec.model)) {
  for (uint32_t group = 0; group < spec.model.kv_groups.size(); ++group) {
    const auto begin = spec.model.layers.begin();
    if (std::any_of(begin + spec.first_layer, begin + spec.last_layer + 1,
                    [&](const LayerSpec& layer) { return layer.attention.kv_group == group; })) {
      groups_.push_back(group);
    }
  }
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    std::array<size_t, 2>& at = rotary_at_.emplace_back();
    for (uint32_t variant = 0; variant < at.size(); ++variant) {
      at[variant] = RotaryOffset(spec.model, layer, variant, spec.context);
    }
  }
}

absl::StatusOr<std::unique_ptr<CpuShard>> CpuShard::Create(
    const StageSpec& spec, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how,
    std::shared_ptr<ThreadPool> pool) {
  std::unique_ptr<CpuShard> shard(new CpuShard(spec, kernels, std::move(pool)));
  WeightLoader loader(shard->spec_, source, packed, how.placer, how.may_map, &shard->weights_);
  RETURN_IF_ERROR(loader.Check());
  RETURN_IF_ERROR(CheckAvailable(loader.packed_bytes() + KvCache::Bytes(spec, shard->kv_f16_) +
                                 shard->sizes_.Bytes()));
  RETURN_IF_ERROR(loader.Load(*kernels, how.threads, progress));
  RETURN_IF_ERROR(shard->Allocate());
  if (const auto& mapped = shard->weights_.mapped; !mapped.empty()) {
    shard->mover_ = std::make_unique<PageMover>(mapped, how.moved);
  }
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
  RETURN_IF_ERROR(floats(&normed_, sizes_.Normed()));
  RETURN_IF_ERROR(floats(&branch_, rows * sizes_.branch));
  RETURN_IF_ERROR(floats(&packed_, rows * sizes_.packed));
  if (sizes_.int8 > 0) {
    RETURN_IF_ERROR(int8_.Allocate(sizes_.Int8(), "buffers"));
  }
  RETURN_IF_ERROR(floats(&q_, rows * sizes_.queries));
  RETURN_IF_ERROR(floats(&k_, rows * sizes_.keys));
  RETURN_IF_ERROR(floats(&v_, rows * sizes_.values));
  RETURN_IF_ERROR(floats(&query_latent_, rows * sizes_.query_rank));
  RETURN_IF_ERROR(floats(&absorbed_, rows * sizes_.absorbed));
  RETURN_IF_ERROR(floats(&summed_, rows * sizes_.summed));
  RETURN_IF_ERROR(floats(&attended_, rows * sizes_.queries));
  if (sizes_.gated > 0) {
    RETURN_IF_ERROR(gated_.Allocate(sizes_.gated_rows * sizes_.gated, "buffers"));
    halves_ = std::vector<std::atomic<uint8_t>>(sizes_.ffn / kQuantBlock + 1);
  }
  RETURN_IF_ERROR(floats(&gate_, rows * sizes_.within));
  RETURN_IF_ERROR(floats(&up_, rows * sizes_.within));
  RETURN_IF_ERROR(floats(&router_, rows * sizes_.experts));
  RETURN_IF_ERROR(floats(&router_keys_, rows * sizes_.experts));
  RETURN_IF_ERROR(floats(&expert_out_, rows * sizes_.most_used * sizes_.hidden));
  expert_rows_.Reserve(rows, sizes_.most_used, sizes_.experts);
  RETURN_IF_ERROR(floats(&attend_, sizes_.threads * sizes_.attend));
  RETURN_IF_ERROR(floats(&partial_, sizes_.partial));
  tile_ends_.reserve(spec_.max_batch_items);
  kept_.reserve(spec_.max_batch_items);
  asked_.resize(sizes_.threads);
  return absl::OkStatus();
}

absl::Status CpuShard::ResizeKv(std::span<const uint64_t> pages) {
  if (pages.size() != spec_.kv_pages.size()) {
    return Misuse("KV pages for another number of groups");
  }
  batch_ = Batch{};
  kv_ = KvCache{};  // First, so that old and new pages need not fit together.
  spec_.kv_pages.assign(pages.begin(), pages.end());
  absl::Status status = CheckAvailable(KvCache::Bytes(spec_, kv_f16_));
  if (status.ok()) {
    status = kv_.Allocate(spec_, kv_f16_);
  }
  if (!status.ok()) {
    kv_ = KvCache{};
    spec_.kv_pages.assign(pages.size(), 0);
  }
  return status;
}

uint64_t CpuShard::MemoryBytes() const {
  uint64_t bytes = weights_.Bytes() + kv_.bytes() + expert_rows_.bytes();
  for (const AlignedBuffer* buffer :
       {&rotary_, &residual_, &normed_, &gated_,       &branch_,       &packed_,   &int8_,
        &q_,      &k_,        &v_,      &attended_,    &query_latent_, &absorbed_, &summed_,
        &gate_,   &up_,       &router_, &router_keys_, &expert_out_,   &attend_,   &partial_}) {
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
  if (item.rotary_variant >= rotary_variants_) {
    return Misuse("a rotary variant that the model does not have");
  }
  if (item.tables.size() != spec_.model.kv_groups.size()) {
    return Misuse("an item has not one page table for each KV group");
  }
  const uint32_t pages = (item.position + item.rows + kPageTokens - 1) / kPageTokens;
  for (const uint32_t group : groups_) {
    const PageTableView& table = item.tables[group];
    const uint32_t window = spec_.model.kv_groups[group].window;
    const uint32_t first = FirstSeen(item.position, window) / kPageTokens;
    if (table.first_page > first || table.pages.size() < pages - table.first_page) {
      return Misuse("a page table does not cover its item");
    }
    for (uint32_t p = first - table.first_page; p < pages - table.first_page; ++p) {
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
          if (!weights_.embedding.empty()) {
            weights_.embedding.ReadRow(*kernels_, batch_.token_ids[row], to);
          } else if (weights_.embedding_panels.bytes() != 0) {
            weights_.embedding_panels.ReadOutput(batch_.token_ids[row], to);
          } else {
            weights_.head.weight.ReadOutput(batch_.token_ids[row], to);
          }
          if (const float scale = spec_.model.embedding_scale; scale != 1) {
            std::for_each(to, to + spec_.model.hidden, [scale](float& x) { x *= scale; });
          }
        }
      },
      kSmallRows);
  return absl::OkStatus();
}

absl::Status CpuShard::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  const size_t hidden = spec_.model.hidden;
  if (!spec_.embeds || values.size() != rows.size() * hidden) {
    return Misuse("input embeddings of another size than their rows, or nothing is embedded here");
  }
  const float scale = spec_.model.input_embedding_scale;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= batch_.rows) {
      return Misuse("an input embedding for a row that the batch does not have");
    }
    std::transform(values.begin() + i * hidden, values.begin() + (i + 1) * hidden,
                   residual_.as<float>() + rows[i] * sizes_.hidden,
                   [scale](float x) { return scale == 1 ? x : x * scale; });
  }
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

absl::Status CpuShard::CheckLayer(uint32_t layer) const {
  if (layer < spec_.first_layer || layer > spec_.last_layer) {
    return Misuse(absl::StrCat("layer ", layer, " is not of this stage"));
  }
  return absl::OkStatus();
}

absl::Status CpuShard::CheckKept(uint32_t layer, std::span<const uint32_t> rows) const {
  if (!spec_.heads || layer != spec_.last_layer) {
    return Misuse("rows are left out before the last layer");
  }
  auto row = rows.begin();
  for (const BatchItem& item : batch_.items) {
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
    Pack(Normed(Rows(normed_.as<float>(), sizes_.hidden, spec_.model.hidden, {&weights_.head}),
                weights_.final_norm, spec_.model.final_norm, spec_.model.final_norm_eps),
         head_rows_);
  }
  return absl::OkStatus();
}

absl::Status CpuShard::ReadLogits(std::span<float> out) {
  if (out.size() != size_t{head_rows_} * spec_.model.vocab) {
    return Misuse("logits of another size than Head's rows");
  }
  if (head_rows_ == 0) {
    return absl::OkStatus();
  }
  const size_t vocab = spec_.model.vocab;
  const float divisor = spec_.model.logits_divisor;
  const float cap = spec_.model.final_soft_cap;
  const MatmulArgs product = Product(weights_.head, head_rows_, out.data(), vocab, false);
  pool_->Split(product.weights.panels(), [&](size_t begin, size_t end) {
    kernels_->matmul(product, begin, end);
    const size_t first = begin * kLanes;
    const size_t count = std::min(end * kLanes, vocab) - first;
    for (uint32_t row = 0; row < head_rows_ && (divisor != 1 || cap != 0); ++row) {
      float* const logits = out.data() + row * vocab + first;
      if (divisor != 1) {
        std::for_each(logits, logits + count, [divisor](float& x) { x /= divisor; });
      }
      if (cap != 0) {
        kernels_->soft_cap(logits, count, cap);
      }
    }
  });
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
