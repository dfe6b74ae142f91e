#include <algorithm>

#include "common/footprint/device_limits.h"
#include "common/footprint/footprint.h"
#include "common/limits.h"
#include "common/model/row_widths.h"
#include "common/model/step_limits.h"

namespace strata {
namespace {

constexpr uint64_t kQuantBlock = 32;
// Numbers of a quantized block beside its values: two scales and two sums.
constexpr uint64_t kBlockNumbers = 4;
// Of an expert of a row: which it is, its weight, two places, and a group of three numbers.
constexpr uint64_t kExpertNumbers = 7;
// Of a row: its token, two times which row it is, its place of three numbers, and of the head what
// is chosen, of two.
constexpr uint64_t kRowNumbers = 8;
// Of the host: frames of activations that wait in or behind a stage, logits that are read at a
// time, and a stage's code, threads and protocol state.
constexpr uint64_t kHostFrames = 4;
constexpr uint64_t kHostLogitsBytes = uint64_t{64} << 20;
constexpr uint64_t kHostProcessBytes = uint64_t{8} << 20;
// What allocations are rounded up by, and what the runtime keeps for launches and for a graph.
constexpr uint64_t kRuntimeBytes = uint64_t{16} << 20;
constexpr uint64_t kGraphBytes = uint64_t{1} << 20;

uint64_t Quantized(uint64_t inputs) { return (inputs + kQuantBlock - 1) / kQuantBlock; }

// Weights and KV are those of the CPU backend, panel by panel and page by page.
class OfCuda : public Footprint {
 public:
  uint64_t WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                       v1::Quantize quantize) const override {
    return CpuFootprint().WeightBytes(tensor, dtype, stored_bytes, quantize);
  }
  uint64_t PageBytes(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                     uint32_t group, v1::KvDtype dtype) const override {
    return CpuFootprint().PageBytes(spec, first_layer, last_layer, group, dtype);
  }
  uint64_t BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                       uint32_t context) const override;
  uint64_t HostBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                     uint32_t context) const override;
};

uint64_t OfCuda::BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                             uint32_t context) const {
  const RowWidths widths(spec, 0, static_cast<uint32_t>(spec.layers.size()) - 1);
  uint64_t quantized = Quantized(spec.hidden);  // Blocks of a row, of all its experts.
  uint64_t values = 0;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = layer.attention;
    values = std::max<uint64_t>(values, a.latent.rank != 0 ? a.latent.rank : a.head_dim);
    quantized =
        std::max({quantized, Quantized(AttentionInputs(a)), Quantized(DenseWidth(layer.mlp)),
                  layer.mlp.router.used * Quantized(layer.mlp.ffn)});
  }
  const uint64_t rows = max_batch_tokens;
  // Residual stream, its norm, a branch and the rows of the head; q and its attention, k, v;
  // latent vectors; gate and up; the router's logits and keys to choose by; what experts give.
  const uint64_t row = 4 * widths.hidden + 2 * widths.queries + widths.keys + widths.values +
                       widths.query_rank + widths.absorbed + widths.summed + 2 * widths.Within() +
                       2 * widths.experts + widths.used * (widths.hidden + kExpertNumbers) +
                       kRowNumbers + quantized * (kQuantBlock / sizeof(float) + kBlockNumbers);
  const uint64_t spans = (uint64_t{context} + kAttentionSpanKeys - 1) / kAttentionSpanKeys;
  const uint64_t partial = kDeviceQueriesBySpans * spans * (values + 2 * kRowFloats);
  const uint64_t pages = (uint64_t{context} + kPageTokens - 1) / kPageTokens;
  const uint64_t tables = rows * spec.kv_groups.size() * (pages + 2);
  const uint64_t logits = heads ? std::min<uint64_t>(rows, kDeviceLogitRows) * spec.vocab : 0;
  return kRuntimeBytes + kDeviceGraphs * kGraphBytes +
         sizeof(float) * (rows * row + partial + tables + widths.experts +
                          RotaryFloats(spec, context) + logits);
}

uint64_t OfCuda::HostBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                           uint32_t context) const {
  const uint64_t rows = max_batch_tokens;
  const uint64_t pages = (uint64_t{context} + kPageTokens - 1) / kPageTokens;
  // As the stage before sent them, as they are gathered for the device, and as it gave them.
  const uint64_t residual = (kHostFrames + 3) * rows * spec.hidden;
  const uint64_t tables = rows * (spec.kv_groups.size() * (pages + 2) + kRowNumbers);
  uint64_t logits = 0;
  if (heads) {
    // As they come from the device, in the result, and in the frame that is sent.
    const uint64_t row_bytes = sizeof(float) * std::max<uint64_t>(1, spec.vocab);
    const uint64_t wanted = std::min(rows, std::max<uint64_t>(1, kHostLogitsBytes / row_bytes));
    logits = 3 * wanted * spec.vocab;
  }
  return kHostProcessBytes + kPinnedBytes + sizeof(float) * (residual + tables + logits);
}

}  // namespace

const Footprint& CudaFootprint() {
  static const OfCuda kFootprint;
  return kFootprint;
}

const Footprint& FootprintOf(std::string_view device) {
  const std::string_view kind = device.substr(0, device.find(':'));
  return kind == "cuda" ? CudaFootprint() : kind == "mlx" ? MlxFootprint() : CpuFootprint();
}

}  // namespace strata
