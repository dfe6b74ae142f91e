#include <algorithm>

#include "common/footprint/footprint.h"
#include "common/footprint/mlx_limits.h"
#include "common/limits.h"
#include "common/model/block_formats.h"
#include "common/model/expert_spec.h"
#include "common/model/row_widths.h"

namespace strata {
namespace {

// Frames of activations that wait in or behind a stage, and a stage's code, threads and protocol
// state.
constexpr uint64_t kFrames = 4;
constexpr uint64_t kProcessBytes = uint64_t{16} << 20;
constexpr uint64_t kLogitsBytes = uint64_t{64} << 20;
// Scores, masked, and as weights; of keys and values 2 bytes and then 4, and values once more.
constexpr uint64_t kScores = 3;
constexpr uint64_t kKeyFloats = 3;
// MLX begins so many computations before the first of them has ended.
constexpr uint64_t kWidenedAhead = 12;
// Keys are attended up to the ends of spans, the longest of which has so many.
constexpr uint64_t kSpanKeys = 512;

uint64_t RoundUp(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

// Integers of so many bits, with a float32 scale and bias for each group.
uint64_t IntegerBytes(const MatrixShape& shape, uint64_t bits, uint64_t group) {
  const uint64_t weights = shape.matrices * shape.outputs * shape.inputs;
  return weights * bits / 8 + 2 * sizeof(float) * (weights / std::max<uint64_t>(1, group));
}

// Of inputs that are quantized here, as worker/backend/mlx takes them; 0: it refuses them.
uint64_t GroupOf(uint64_t inputs, uint64_t most) {
  for (const uint64_t group : {128u, 64u, 32u}) {
    if (group <= most && inputs % group == 0) {
      return group;
    }
  }
  return 0;
}

class OfMlx : public Footprint {
 public:
  uint64_t WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                       v1::Quantize quantize) const override;
  uint64_t PageBytes(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                     uint32_t group, v1::KvDtype dtype) const override {
    return CpuFootprint().PageBytes(spec, first_layer, last_layer, group, dtype);
  }
  uint64_t BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                       uint32_t context) const override;
  uint64_t HostBytes(const ModelSpec& /*spec*/, uint32_t /*max_batch_tokens*/, bool /*heads*/,
                     uint32_t /*context*/) const override {
    return 0;
  }
};

// Matrices are MLX's integers, floats as they are stored, or float32, and so is all else.
uint64_t OfMlx::WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                            v1::Quantize quantize) const {
  if (tensor.part || IsMxfp4Scales(tensor.name)) {
    return 0;
  }
  const MatrixShape shape = LoadedShape(tensor);
  if (shape.matrices == 0) {
    const bool halves = dtype == Dtype::kF16 || dtype == Dtype::kBF16;
    return halves ? 2 * stored_bytes : stored_bytes;
  }
  Dtype loaded = LoadedDtype(tensor.name, dtype);
  if (tensor.matrix.has_value()) {
    const KeptForm kept = tensor.matrix->Kept();
    if (kept.kind == KeptForm::Kind::kIntegers) {
      return IntegerBytes(shape, kept.bits, kept.group);
    }
    loaded = kept.kind == KeptForm::Kind::kBlocks ? kept.blocks : Dtype::kF32;
  } else if (loaded == Dtype::kU32) {
    return stored_bytes;  // Its scales and biases are tensors of their own.
  }
  if (!KeepsIntegers(tensor, loaded) && !StaysAsStored(tensor.name)) {
    if (quantize == v1::QUANTIZE_INT8) {
      return IntegerBytes(shape, 8, GroupOf(shape.inputs, 128));
    }
    if (quantize == v1::QUANTIZE_INT4) {
      return IntegerBytes(shape, 4, GroupOf(shape.inputs, 64));
    }
  }
  const uint64_t weights = shape.matrices * shape.outputs * shape.inputs;
  if (IsBlocks(loaded) && !StaysAsStored(tensor.name)) {
    const MlxBlocks blocks = MlxBlocksOf(loaded);
    if (blocks.mxfp4) {
      return weights / 2 + weights / 32;
    }
    if (blocks.bits != 0) {
      return IntegerBytes(shape, blocks.bits, 32);
    }
  }
  const bool two_bytes = (loaded == Dtype::kF16 || loaded == Dtype::kBF16) &&
                         !tensor.matrix.has_value() && !IsOfExperts(tensor.name) &&
                         !StaysAsStored(tensor.name);
  // In whole words.
  return two_bytes ? (2 * weights + 3) / 4 * 4 : sizeof(float) * weights;
}

uint64_t OfMlx::BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                            uint32_t context) const {
  const RowWidths widths(spec, 0, static_cast<uint32_t>(spec.layers.size()) - 1);
  const uint64_t keys = RoundUp(context, kSpanKeys);
  uint64_t attended = 0;  // Of one span.
  for (const LayerSpec& layer : spec.layers) {
    const uint64_t row = uint64_t{layer.attention.heads} * keys * sizeof(float);
    attended = std::max(attended, keys * layer.attention.KvNumbers() * kKeyFloats * sizeof(float) +
                                      kScores * std::max(row, kMlxScoreBytes));
  }
  const uint64_t rows = max_batch_tokens;
  // What one branch of a layer makes of each row, before it is evaluated.
  const uint64_t row = 8 * widths.hidden + 6 * widths.queries + 4 * (widths.keys + widths.values) +
                       6 * widths.Within() +
                       2 * (widths.query_rank + widths.absorbed + widths.summed) +
                       4 * widths.experts + 2 * widths.used * widths.hidden;
  const uint64_t frames = kFrames * rows * spec.hidden;
  const uint64_t rotary = 2 * RotaryFloats(spec, context);  // As shipped and as used.
  uint64_t logits = 0;
  if (heads) {
    // As computed, as read, in the result, and in the frame that is sent.
    const uint64_t row_bytes = sizeof(float) * std::max<uint64_t>(1, spec.vocab);
    const uint64_t wanted = std::min(rows, std::max<uint64_t>(1, kLogitsBytes / row_bytes));
    logits = 5 * wanted * spec.vocab;
  }
  return kProcessBytes + kMlxGraphBytes + kMlxCacheBytes + kWidenedAhead * kMlxWidenedBytes +
         attended + sizeof(float) * (rows * row + frames + rotary + logits);
}

}  // namespace

MlxBlocks MlxBlocksOf(Dtype dtype) {
  using Kind = BlockPanels::Kind;
  switch (PanelsOf(dtype).kind) {
    case Kind::kInt8:
    case Kind::kAffine8:
    case Kind::kSuper5:
      return {.bits = 8};
    case Kind::kAffine4:
    case Kind::kSuper4:
      return {.bits = 4};
    case Kind::kCodes:
      return {.bits = dtype == Dtype::kMXFP4 ? 4u : 0u, .mxfp4 = dtype == Dtype::kMXFP4};
    case Kind::kSuper2:
    case Kind::kSuper6:
      break;  // A scale for each 16 inputs, which MLX's integers do not have.
  }
  return {};
}

const Footprint& MlxFootprint() {
  static const OfMlx kFootprint;
  return kFootprint;
}

}  // namespace strata
