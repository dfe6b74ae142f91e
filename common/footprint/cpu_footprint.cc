#include <algorithm>

#include "common/footprint/footprint.h"
#include "common/limits.h"
#include "common/model/block_formats.h"
#include "common/model/quantized_weights.h"
#include "common/model/step_limits.h"

namespace strata {
namespace {

// A node's threads are not known here; these are as many as a large one has.
constexpr uint64_t kThreads = 64;
// Attention's working set of one thread: a tile of queries with scores over a span of keys.
constexpr uint64_t kTileQueries = 32;
// Rows that each thread norms and quantizes for itself.
constexpr uint64_t kOwnRows = 8;
// Rows of a block, quantized once more as the last product of a dense MLP takes them.
constexpr uint64_t kBlockRows = 16;
// Sequences of a step whose attention is cut over threads, with partial sums for every span.
constexpr uint64_t kSplitItems = 16;
// Frames of activations that wait in or behind a stage: one received, one being sent, and the
// queue between.
constexpr uint64_t kFrames = 4;
// Logits are computed this much at a time, and a step's result carries no more.
constexpr uint64_t kLogitsBytes = uint64_t{64} << 20;
// Code, connections, protocol state, page tables.
constexpr uint64_t kProcessBytes = uint64_t{8} << 20;

class OfCpu : public Footprint {
 public:
  uint64_t WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                       v1::Quantize quantize) const override;
  uint64_t PageBytes(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                     uint32_t group, v1::KvDtype dtype) const override;
  uint64_t BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                       uint32_t context) const override;
  uint64_t HostBytes(const ModelSpec& /*spec*/, uint32_t /*max_batch_tokens*/, bool /*heads*/,
                     uint32_t /*context*/) const override {
    return 0;
  }
};

uint64_t OfCpu::WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                            v1::Quantize quantize) const {
  if (tensor.part || IsMxfp4Scales(tensor.name)) {
    return 0;
  }
  const Dtype loaded = LoadedDtype(tensor.name, dtype);
  const MatrixShape shape = LoadedShape(tensor);
  const bool matrix = shape.matrices != 0;
  const bool floats = matrix && !KeepsIntegers(tensor, loaded) && !StaysAsStored(tensor.name);
  if (floats && quantize == v1::QUANTIZE_INT8) {
    return shape.matrices * QuantizedMatrixBytes(shape.outputs, shape.inputs, 8);
  }
  if (floats && quantize == v1::QUANTIZE_INT4) {
    return shape.matrices * QuantizedMatrixBytes(shape.outputs, shape.inputs, 4);
  }
  if (tensor.matrix.has_value()) {
    return tensor.matrix->KeptBytes();
  }
  if (!matrix || !IsBlocks(loaded)) {
    return stored_bytes;
  }
  return StaysAsStored(tensor.name)
             ? shape.matrices * shape.outputs * shape.inputs * sizeof(float)
             : shape.matrices * BlockMatrixBytes(loaded, shape.outputs, shape.inputs);
}

uint64_t OfCpu::PageBytes(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                          uint32_t group, v1::KvDtype dtype) const {
  return kPageTokens *
         KvBytesPerToken(spec, first_layer, last_layer, group, dtype == v1::KV_DTYPE_F32 ? 4 : 2);
}

uint64_t OfCpu::BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                            uint32_t context) const {
  uint64_t queries = 0;
  uint64_t keys = 0;
  uint64_t head_dim = 0;
  uint64_t query_heads = 0;
  uint64_t widest = spec.hidden;  // The input of a matrix, or of all experts of a row.
  uint64_t within = 0;            // Between the matrices of the MLP, likewise.
  uint64_t experts = 0;
  uint64_t expert_out = 0;
  uint64_t latents = 0;
  uint64_t attended = spec.hidden;  // The widest that a matrix of attention takes,
  uint64_t gated = 0;               // and that a dense MLP's last one does.
  uint64_t branch = 0;              // Where what leaves a branch is normed or multiplied.
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = layer.attention;
    const LatentSpec& latent = a.latent;
    queries = std::max({queries, uint64_t{a.heads} * a.head_dim, a.OutputInputs()});
    attended = std::max(
        {attended, uint64_t{a.heads} * a.head_dim, a.OutputInputs(), uint64_t{latent.query_rank}});
    keys = std::max({keys, uint64_t{a.kv_heads} * a.head_dim, uint64_t{latent.kept()}});
    if (latent.rank != 0) {
      // Queries and sums of all heads as wide as what is kept, and the vector queries come out of.
      latents =
          std::max(latents, uint64_t{a.heads} * (latent.kept() + latent.rank) + latent.query_rank);
    }
    const MlpSpec& mlp = layer.mlp;
    const uint64_t active = mlp.active();
    gated = std::max(gated, uint64_t{mlp.experts == 0 ? mlp.ffn : mlp.shared_ffn});
    within = std::max({within, active * mlp.ffn, uint64_t{mlp.shared_ffn}});
    widest = std::max({widest, queries, active * std::max(spec.hidden, mlp.ffn)});
    experts = std::max(experts, uint64_t{2} * mlp.experts);  // Logits, and keys to choose by.
    expert_out = std::max(expert_out, mlp.experts == 0 ? 0 : active * spec.hidden);
    head_dim = std::max({head_dim, uint64_t{a.head_dim}, uint64_t{latent.kept()}});
    query_heads = std::max(query_heads, uint64_t{a.heads});
    if (layer.norm_places != NormPlaces::kBefore || layer.branch_scale != 1 ||
        layer.mlp.experts != 0) {
      branch = spec.hidden;
    }
  }
  const uint64_t rows = max_batch_tokens;
  // Residual stream, its norm, the input of a product (also in int8), q and its attention, k, v,
  // gate, up, a branch, the router's logits, what experts give.
  const uint64_t activations = rows * (2 * spec.hidden + 2 * widest + 2 * queries + 2 * keys +
                                       2 * within + branch + experts + expert_out + latents);
  const uint64_t frames = kFrames * rows * spec.hidden;
  const uint64_t own = kThreads * kOwnRows * (spec.hidden + attended) + kBlockRows * gated;
  const uint64_t attention = kThreads * kTileQueries * (kAttentionSpanKeys + 4 * head_dim);
  const uint64_t spans = (uint64_t{context} + kAttentionSpanKeys - 1) / kAttentionSpanKeys;
  const uint64_t partial = kSplitItems * query_heads * spans * (head_dim + 16);
  const uint64_t rotary = 2 * RotaryFloats(spec, context);  // As shipped and as used.
  uint64_t logits = 0;
  if (heads) {
    // As computed, in the result, and in the frame that is sent.
    const uint64_t row_bytes = sizeof(float) * std::max<uint64_t>(1, spec.vocab);
    const uint64_t wanted = std::min(rows, std::max<uint64_t>(1, kLogitsBytes / row_bytes));
    logits = 3 * wanted * spec.vocab;
  }
  return kProcessBytes +
         sizeof(float) * (activations + frames + own + attention + partial + rotary + logits);
}

}  // namespace

const Footprint& CpuFootprint() {
  static const OfCpu kFootprint;
  return kFootprint;
}

v1::Quantize QuantizeOf(v1::Quantize quantize, bool in_layer) {
  return !in_layer && quantize == v1::QUANTIZE_INT4 ? v1::QUANTIZE_INT8 : quantize;
}

MatrixShape LoadedShape(const StageTensor& tensor) {
  return tensor.matrix
             ? MatrixShape{tensor.matrix->matrices, tensor.matrix->outputs, tensor.matrix->inputs}
             : MatrixShapeOf(tensor.name, tensor.shape, tensor.inputs_first);
}

std::string LoadedFormat(const ModelSpec& spec, const StageTensor& tensor, Dtype dtype,
                         v1::Quantize quantize) {
  if (!KeepsIntegers(tensor, dtype)) {
    if (quantize == v1::QUANTIZE_INT8) return "int8";
    if (quantize == v1::QUANTIZE_INT4) return "int4";
  }
  return StoredFormat(spec, tensor, dtype);
}

}  // namespace strata
