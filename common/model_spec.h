// What a model is, as data. A parser of config.json (common/checkpoint) fills it; backends compute
// any model that it can describe. Const after construction.
#ifndef STRATA_COMMON_MODEL_SPEC_H_
#define STRATA_COMMON_MODEL_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The last eight are formats of blocks, see common/block_formats.h.
enum class Dtype {
  kF32,
  kF16,
  kBF16,
  kU8,
  kI8,
  kU32,
  kI32,
  kI64,
  kF64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K
};
// Bytes of one element; 0 for a format of blocks.
size_t DtypeBytes(Dtype dtype);
// safetensors' name, "BF16"; ggml's for blocks, "Q4_0".
const char* DtypeName(Dtype dtype);
// The dtype of that name.
std::optional<Dtype> DtypeOfName(std::string_view name);

enum class NormKind { kRms, kRmsOnePlus };
enum class ActivationKind { kSilu, kGeluTanh };

enum class RopeScaling { kNone, kLlama3 };

// How positions become rotations. Angles are position * inverse_frequency[i], i < rotary_dim / 2;
// half-rotation: dimension i is paired with i + rotary_dim / 2.
struct RopeSpec {
  uint32_t rotary_dim = 0;  // Even, <= head_dim.
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  // For kLlama3; see shared facts: wavelengths below original/high keep their frequency, above
  // original/low are divided by factor, between are interpolated.
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_context = 0.0;
  // What each frequency is divided by, as GGUF files have it; empty: by nothing.
  std::vector<float> divisors;
  bool operator==(const RopeSpec&) const = default;
};

enum class KvKind { kFull, kWindow, kMla };

// Layers that keep KV alike share a group, and so a page table.
struct KvGroupSpec {
  KvKind kind = KvKind::kFull;
  uint32_t window = 0;  // Keys seen, own included; 0 for kFull.
  bool operator==(const KvGroupSpec&) const = default;
};
// The first position that a query at `position` sees: of `window` keys, its own included; 0: all.
constexpr uint32_t FirstSeen(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}
// "full", "window-4096", "mla".
std::string KvGroupName(const KvGroupSpec& group);

struct AttentionSpec {
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // Divides heads.
  uint32_t head_dim = 0;
  float scale = 0;        // Multiplies q.k; usually head_dim^-1/2.
  float soft_cap = 0;     // 0: none.
  uint32_t kv_group = 0;  // Index into ModelSpec::kv_groups.
  bool rotates = true;
  bool qkv_bias = false;
  bool out_bias = false;
  // The rows of q and k are stored in the order that rotates neighbours: row 2 i + j of a head is
  // row i + j * head_dim / 2 of a half-rotation's. Loading puts them in order.
  bool qk_rows_in_pairs = false;
  RopeSpec rope;
};

struct MlpSpec {
  uint32_t ffn = 0;
  ActivationKind activation = ActivationKind::kSilu;
  bool bias = false;
  uint32_t experts = 0;  // 0: dense. Others are refused until a backend has them.
  uint32_t experts_used = 0;
};

// One decoder block: x += attention(norm(x)); x += mlp(norm(x)).
struct LayerSpec {
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  AttentionSpec attention;
  MlpSpec mlp;
};

// Weights stored as w = scale * q + bias, q of `bits` bits, a scale and a bias for each `group`
// inputs.
struct AffineSpec {
  uint32_t bits = 4;    // Or 8.
  uint32_t group = 64;  // Or 32, 128.
  bool operator==(const AffineSpec&) const = default;
};

// How the matrices of a checkpoint are stored that has scales and biases for them; the others are
// floats.
struct QuantizationSpec {
  AffineSpec by_default;
  std::map<std::string, AffineSpec> by_path;  // "model.layers.0.mlp.down_proj".
  bool operator==(const QuantizationSpec&) const = default;
};

struct ModelSpec {
  std::string family;  // "llama"
  uint32_t hidden = 0;
  uint32_t vocab = 0;
  uint32_t context = 0;  // max_position_embeddings.
  bool tied_head = false;
  NormKind final_norm = NormKind::kRms;
  float final_norm_eps = 1e-5f;
  float final_soft_cap = 0;  // 0: none.
  std::vector<LayerSpec> layers;
  std::vector<KvGroupSpec> kv_groups;
  // Prefix of the decoder's tensor names: "" or, say, "llm.".
  std::string tensor_prefix;
  std::optional<QuantizationSpec> quantization;
  std::optional<uint32_t> bos_id;
  std::vector<uint32_t> eos_ids;  // generation_config's over config's.
};

// Bytes of K and V that one token needs in the layers [first, last] of `group`, 2 or 4 bytes an
// element.
uint64_t KvBytesPerToken(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                         uint32_t group, uint32_t element_bytes);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_SPEC_H_
