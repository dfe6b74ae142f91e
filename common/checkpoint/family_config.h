// The families of models, as data: how the config.json of each departs from Llama's. Internal to
// the parser of config.json.
#ifndef STRATA_COMMON_CHECKPOINT_FAMILY_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_FAMILY_CONFIG_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/expert_config.h"
#include "common/checkpoint/json_reader.h"
#include "common/model/model_spec.h"

namespace strata {

// Which layers look back through a sliding window, where layer_types does not say it.
enum class WindowRule {
  kNone,         // The field is refused.
  kAll,          // All, when there is a window.
  kFlagged,      // With use_sliding_window, those from max_window_layers on.
  kRefused,      // None: a window that use_sliding_window does not turn off is refused.
  kPattern,      // All but each sliding_window_pattern-th.
  kAlternating,  // The first, and every second from there on.
};

// Sections of multimodal positions in the rotary object (mrope_section).
enum class Mrope {
  kNone,         // Refused.
  kSections,     // They divide the pairs of a head, and may be a type of their own.
  kInterleaved,  // Of any length.
};

// Whether attention's last projection has a bias.
enum class OutBias {
  kAsOthers,  // As q, k and v, by attention_bias.
  kNever,
  kOwnField,  // By attention_out_bias.
};

// Defaults are those of the configuration classes of transformers.
struct Family {
  const char* model_type;
  const char* architecture;
  const char* name;  // ModelSpec::family.
  // Of several with the same names, the one whose config.json has this `version`.
  const char* version = nullptr;
  // Fields that it reads and that are refused elsewhere, between spaces.
  const char* reads = "";
  // 0: the field is required.
  uint32_t heads = 0;
  uint32_t vocab = 0;
  // 0: as many as heads, and hidden_size / heads, where the field is not `required`.
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  bool kv_heads_required = false;
  uint64_t context = 2048;
  double norm_eps = 1e-6;
  double theta = 1e4;
  const char* default_rope = nullptr;  // rope_parameters where the file has none, as JSON.
  bool tied = false;
  NormKind norm = NormKind::kRms;
  NormPlaces norm_places = NormPlaces::kBefore;
  QkNorm qk_norm = QkNorm::kNone;
  bool qkv_bias = false;             // Always; else by attention_bias.
  bool reads_attention_bias = true;  // Else it must be false.
  bool attention_bias = false;       // Its default.
  OutBias out_bias = OutBias::kAsOthers;
  bool reads_mlp_bias = false;
  bool fused = false;                   // q, k, v in one matrix, gate and up in another.
  bool fused_mlp = false;               // Gate and up alone.
  bool rotates_neighbours = false;      // AttentionSpec::rotates_neighbours.
  const char* qk_norm_field = nullptr;  // By which there is a qk_norm, false by default.
  const char* activation_field = "hidden_act";
  const char* activation = "silu";
  const char* activation_too = nullptr;  // A name that published files give it, and is another's.
  WindowRule windows = WindowRule::kNone;
  uint32_t window = 0;          // Where the field is absent; 0: none. null always means none.
  uint32_t window_pattern = 0;  // Default of sliding_window_pattern.
  uint32_t window_from = 28;    // Default of max_window_layers.
  bool reads_layer_types = false;
  bool scales_embedding = false;  // By sqrt(hidden_size).
  double score_divisor = 0;       // Default of query_pre_attn_scalar; 0: head_dim.
  double score_cap = 0;           // Default of attn_logit_softcapping.
  double logit_cap = 0;           // Default of final_logit_softcapping.
  double local_theta = 0;         // Windowed layers rotate by rope_local_base_freq; its default.
  // Layers with a window turn without scaling; or each kind by an object of its own.
  bool scales_full_alone = false;
  ExpertRule experts = {};
  bool partial_rotary = false;
  double partial_share = 1;  // Default of partial_rotary_factor.
  Mrope mrope = Mrope::kNone;
  bool query_growth = false;  // AttentionSpec::query_growth, by llama_4_scaling_beta.
  bool long_rope = false;
  bool latent = false;             // Multi-head latent attention, rotated in neighbours.
  const char* tensor_prefix = "";  // Names of the decoder's tensors begin so.
  bool yarn = false;
  bool sinks = false;  // AttentionSpec::sinks.
  // The decoder's configuration is within text_config, and its tensors' names begin so.
  const char* nested_prefix = nullptr;
  const char* text_type = nullptr;  // The decoder's model_type where it has none of its own.
  bool flat_text = false;           // Without text_config the decoder's fields stand outside.
  bool tied_by_either = false;      // tie_word_embeddings of the model, or of its decoder.
};

// The rows (family_table.cc).
std::span<const Family> Families();

// Whether it reads a field that others refuse.
bool Reads(const Family& family, std::string_view field);

// By model_type and architectures, which must agree where both are there.
absl::StatusOr<const Family*> FindFamily(const nlohmann::json& config);

// Refuses, by name, fields that change what is computed and that the family does not read.
absl::Status CheckNothingElse(const nlohmann::json& config, const Family& family);

// By layer: the keys that it sees, its own included; 0: all. Windows that reach over the whole
// context are none.
absl::StatusOr<std::vector<uint32_t>> ReadWindows(const nlohmann::json& config,
                                                  const Family& family, uint64_t layers,
                                                  uint64_t context);

// By layer: whether it rotates queries and keys.
absl::StatusOr<std::vector<bool>> ReadRotatingLayers(const nlohmann::json& config,
                                                     const Family& family, uint64_t layers);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_FAMILY_CONFIG_H_
