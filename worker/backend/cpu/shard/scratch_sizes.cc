#include "worker/backend/cpu/shard/scratch_sizes.h"

#include <algorithm>

#include "worker/backend/cpu/shard/kv_cache.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {
namespace {

// Rows that each thread quantizes for itself. No more, since all threads have memory for them,
// which a planner counts for as many threads (common/footprint/cpu_footprint.cc).
constexpr uint32_t kOwnRows = 8;

}  // namespace

ScratchSizes::ScratchSizes(const StageSpec& spec, const Kernels& kernels, uint32_t threads,
                           size_t attended)
    : RowWidths(spec.model, spec.first_layer, spec.last_layer),
      rows(spec.max_batch_tokens),
      own_rows(std::min({spec.max_batch_tokens, kernels.block_rows.alone, kOwnRows})),
      gated_rows(std::min(spec.max_batch_tokens, kernels.block_rows.alone)),
      threads(threads) {
  static_assert(kRowFloats % kLanes == 0, "a row is whole vectors");
  const auto packs = [&](size_t inputs, size_t times) {
    packed = std::max(packed, times * inputs);
    if (spec.activations == v1::ACTIVATIONS_INT8) {
      int8 = std::max(int8, times * kernels.quantized_row_bytes(inputs));
    }
  };
  packs(spec.model.hidden, 1);
  packs(attended, 1);
  this->attended = std::max(queries, RoundUp(attended, kRowFloats));
  for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
    const LayerSpec& layer = spec.model.layers[i];
    const AttentionSpec& a = layer.attention;
    const LatentSpec& latent = a.latent;
    const bool kept = latent.rank != 0;
    const size_t key_dim = kept ? latent.kept() : a.head_dim;
    const size_t value_dim = kept ? latent.rank : a.head_dim;
    const size_t inputs = AttentionInputs(a);
    packs(inputs, 1);
    if (layer.norm_places != NormPlaces::kBefore || layer.branch_scale != 1 ||
        layer.mlp.experts != 0) {
      branch = hidden;
    }
    if (layer.mlp.experts != 0) {
      packs(std::max(spec.model.hidden, layer.mlp.ffn), layer.mlp.router.used);
    }
    const uint32_t dense = DenseWidth(layer.mlp);
    packs(dense, 1);
    if (spec.activations == v1::ACTIVATIONS_INT8) {
      const size_t own = std::max({size_t{spec.model.hidden}, inputs, attended});
      own_int8 = std::max(own_int8, kernels.quantized_row_bytes(own));
      gated = std::max(gated, kernels.quantized_row_bytes(dense));
    }
    attend = std::max(attend, RoundUp(AttendScratchFloats(key_dim, latent.rank), kLanes));
    if (kept) {
      // LatentAttention packs a block of rows of one head there.
      const size_t widest = std::max(latent.nope_dim, latent.rank);
      attend = std::max(attend, RoundUp(kernels.block_rows.alone * widest, kLanes));
    }
    if (a.heads == 0) {
      continue;  // Other ranks have them.
    }
    const size_t items = std::min<size_t>(spec.max_batch_items,
                                          MostItemsBySpans(threads, a.heads / cpu::HeadsAtOnce(a)));
    partial = std::max(partial, items * a.heads * SpansOf(spec.context) * PartialFloats(value_dim));
  }
  within = Within();
  rotary = spec.rotary.size();
}

uint64_t ScratchSizes::Bytes() const {
  const uint64_t row = hidden + branch + packed + queries + attended + keys + values + query_rank +
                       absorbed + summed + 2 * within + 2 * experts + used * hidden;
  return sizeof(float) * (rows * row + Normed() + threads * attend + partial + rotary) + Int8() +
         gated_rows * gated;
}

}  // namespace strata::cpu
