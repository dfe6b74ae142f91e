// What a model is, as data. A parser of config.json (common/checkpoint) fills it; backends compute
// any model that it can describe. Const after construction.
#ifndef STRATA_COMMON_MODEL_MODEL_SPEC_H_
#define STRATA_COMMON_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/dtype.h"
#include "common/model/expert_spec.h"
#include "common/model/quantization_spec.h"
#include "common/model/window.h"

namespace strata {

enum class NormKind { kRms, kRmsOnePlus };
// kClampedSilu: gate * sigmoid(gain gate) * (up + 1), both clamped (MlpSpec::clamp, gain).
enum class ActivationKind { kSilu, kGeluTanh, kClampedSilu };

enum class RopeScaling { kNone, kLinear, kLlama3, kLongRope, kYarn, kDynamic };

// How positions become rotations. Angles are position * inverse_frequency[i], i < rotary_dim / 2;
// half-rotation: dimension i is paired with i + rotary_dim / 2, and what is behind rotary_dim does
// not turn.
struct RopeSpec {
  uint32_t rotary_dim = 0;  // Even, <= head_dim.
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  // kLinear divides every frequency by factor. kLlama3: wavelengths below original/high keep their
  // frequency, above original/low are divided by factor, between are interpolated.
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // kDynamic: requests that stay within original_context tokens turn as without scaling (rotary
  // variant 0), longer ones (1) by the theta of dynamic NTK for factor * original_context tokens.
  double original_context = 0.0;
  // What each frequency is divided by, as GGUF files have it; empty: by nothing.
  std::vector<float> divisors = {};
  // kYarn: a frequency of pair i is divided by factor in the share that i has come from yarn_low to
  // yarn_high.
  double yarn_low = 0;
  double yarn_high = 0;
  // kLongRope: what each frequency is divided by, rotary_dim / 2 of each, in requests that stay
  // within original_context tokens (rotary variant 0) and in longer ones (1); and what sine and
  // cosine are multiplied by.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
  double magnitude = 1.0;  // Multiplies sine and cosine.

  uint32_t variants() const {
    return scaling == RopeScaling::kLongRope || scaling == RopeScaling::kDynamic ? 2 : 1;
  }
  bool operator==(const RopeSpec&) const = default;
};

enum class KvKind { kFull, kWindow, kMla };

// Layers that keep KV alike share a group, and so a page table.
struct KvGroupSpec {
  KvKind kind = KvKind::kFull;
  uint32_t window = 0;  // Keys seen, own included; 0 for kFull.
  bool operator==(const KvGroupSpec&) const = default;
};
// Tokens of one sequence that may be in flight: of all steps that may be.
constexpr uint64_t KvRowsInFlight(uint64_t stages, uint64_t max_batch_tokens) {
  return (stages + 1) * max_batch_tokens;
}
// The most pages that a sequence of `length` tokens has in a group while no more than `rows` tokens
// of it are not known to be committed: pages behind a window are freed when what sees them is.
// Of a pipeline it is KvRowsInFlight.
uint64_t MostKvPages(const KvGroupSpec& group, uint64_t length, uint64_t rows);
// "full", "window-4096", "mla".
std::string KvGroupName(const KvGroupSpec& group);

// Queries and keys normed before they turn: each head by a weight [head_dim], or all of a row's
// heads at once by one of their width.
enum class QkNorm { kNone, kHead, kProjection };

// Multi-head latent attention: keys and values of all heads are made of one latent vector a
// position. KV keeps that, normed, and one key of rope_dim dimensions, rotated, that all heads see.
// Queries meet it as it is kept: what would make keys of it is applied to the queries, and what
// would make values to what was attended to.
struct LatentSpec {
  uint32_t rank = 0;        // Of the latent vector; 0: the layer keeps keys and values.
  uint32_t query_rank = 0;  // Queries are projected out of a normed vector so wide; 0: at once.
  // Of a head: query dimensions that meet the latent vector, those behind them that rotate (in
  // pairs of neighbours), and dimensions of a value.
  uint32_t nope_dim = 0;
  uint32_t rope_dim = 0;
  uint32_t value_dim = 0;
  float norm_eps = 1e-6f;  // Of both latent vectors.

  uint32_t kept() const { return rank + rope_dim; }  // Numbers of a position.
};

struct AttentionSpec {
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // Divides heads. 1 with a latent vector.
  uint32_t head_dim = 0;  // Of a query as it is projected.
  float scale = 0;        // Multiplies q.k; usually head_dim^-1/2.
  float soft_cap = 0;     // 0: none.
  uint32_t kv_group = 0;  // Index into ModelSpec::kv_groups.
  bool rotates = true;
  // What turns is dimensions 2 i and 2 i + 1, and not the halves (RopeSpec). Latent vectors always
  // turn so.
  bool rotates_neighbours = false;
  // Rotated queries of position p are multiplied by 1 + query_growth * ln(1 + floor(p /
  // query_growth_every)): Llama 4's scaling. 0: by nothing.
  float query_growth = 0;
  uint32_t query_growth_every = 0;
  QkNorm qk_norm = QkNorm::kNone;  // Of the layer's kind and epsilon.
  bool qkv_bias = false;
  bool out_bias = false;
  bool sinks = false;  // Each head has a score beside those of its keys, which has no value.
  // The rows of q and k are stored in the order that rotates neighbours: row 2 i + j of a head is
  // row i + j * head_dim / 2 of a half-rotation's. Loading puts them in order.
  bool qk_rows_in_pairs = false;
  bool fused_qkv = false;  // Stored as one matrix: rows of q, then k, then v.
  RopeSpec rope;
  LatentSpec latent;

  // Numbers that KV keeps of a position, and products of a query head with them, scores and sums.
  uint64_t KvNumbers() const {
    return latent.rank != 0 ? latent.kept() : uint64_t{2} * kv_heads * head_dim;
  }
  uint64_t ProductsPerKey() const {
    return latent.rank != 0 ? latent.kept() + latent.rank : uint64_t{2} * head_dim;
  }
  // Inputs of the projection that ends the branch.
  uint64_t OutputInputs() const {
    return uint64_t{heads} * (latent.rank != 0 ? latent.value_dim : head_dim);
  }
};

// Dense, or a mixture of `experts` of which a router chooses some for each row.
struct MlpSpec {
  uint32_t ffn = 0;  // Of each expert.
  ActivationKind activation = ActivationKind::kSilu;
  float clamp = 0;  // Of kClampedSilu: gate is this at most, up within plus and minus this.
  float gain = 0;   // Of kClampedSilu; gpt-oss' is 1.702.
  bool bias = false;
  bool fused_gate_up = false;  // Stored as one matrix: rows of gate, then up.
  uint32_t experts = 0;        // 0: dense.
  RouterSpec router;
  ExpertNames expert_names = ExpertNames::kMlp;
  uint32_t shared_ffn =
      0;  // Of a mixture: of the expert that computes every row; 0: there is none.

  // Of `ffn`, those that compute a row.
  uint32_t active() const { return experts == 0 ? 1 : router.used; }
};

// Where a layer norms: what enters a branch, what leaves it (before it is added), or both; the last
// under the names of GLM-4 (NormNames).
enum class NormPlaces { kBefore, kAfter, kAround, kAroundGlm4 };

// One decoder block, of two branches: x += s * after(attention(before(x))); x += s *
// after(mlp(before(x))).
struct LayerSpec {
  NormKind norm = NormKind::kRms;
  NormPlaces norm_places = NormPlaces::kBefore;
  float norm_eps = 1e-5f;
  float branch_scale = 1;  // s.
  AttentionSpec attention;
  MlpSpec mlp;
};

struct ModelSpec {
  std::string family;  // "llama"
  uint32_t hidden = 0;
  uint32_t vocab = 0;
  // Tokens of the longest request: max_position_embeddings, or what the scaling of its rotation
  // makes of the original context, where that is more (ContextOf in rope_config.h).
  uint32_t context = 0;
  bool tied_head = false;
  float embedding_scale = 1;        // Multiplies what is looked up.
  float input_embedding_scale = 1;  // Multiplies embeddings that are given in place of tokens.
  NormKind final_norm = NormKind::kRms;
  float final_norm_eps = 1e-5f;
  float logits_divisor = 1;  // Before the soft-cap.
  float final_soft_cap = 0;  // 0: none.
  std::vector<LayerSpec> layers;
  std::vector<KvGroupSpec> kv_groups;
  // Prefix of the decoder's tensor names: "" or, say, "llm.".
  std::string tensor_prefix;
  std::optional<QuantizationSpec> quantization;
  std::optional<uint32_t> bos_id;
  std::vector<uint32_t> eos_ids;  // generation_config's over config's.
};

// Names of a layer's norms below "model.layers.N.", without ".weight"; null where it has none.
struct LayerNormNames {
  const char* before_attention = nullptr;
  const char* after_attention = nullptr;
  const char* before_mlp = nullptr;
  const char* after_mlp = nullptr;
};
LayerNormNames NormNames(NormPlaces places);

// Whether a matrix stays as it is stored where others are quantized at load: routers, and what
// latent vectors become keys and values by, which is applied to other vectors, a head at a time.
bool StaysAsStored(std::string_view tensor);

// The distinct ropes of the layers that rotate, in the order of the layers. The rotary tables of a
// context are, for each of them and each of its variants, cos then sin, float32 [context,
// rotary_dim / 2].
std::vector<RopeSpec> RopesOf(const ModelSpec& spec);
uint64_t RotaryFloats(const ModelSpec& spec, uint32_t context);
// Where the cosines of a rotating layer begin in them, in floats. Of a rope with one variant that
// serves all.
uint64_t RotaryOffset(const ModelSpec& spec, uint32_t layer, uint32_t variant, uint32_t context);
// The most variants of any layer: 1, or 2 where requests choose (RopeSpec::original_context).
uint32_t RotaryVariants(const ModelSpec& spec);
// Tokens above which a request takes variant 1; 0: there is none.
uint32_t LongRotaryAbove(const ModelSpec& spec);

// Bytes of K and V that one token needs in the layers [first, last] of `group`, 2 or 4 bytes an
// element.
uint64_t KvBytesPerToken(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                         uint32_t group, uint32_t element_bytes);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_MODEL_SPEC_H_
