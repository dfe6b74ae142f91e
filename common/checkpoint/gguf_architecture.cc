#include "common/checkpoint/gguf_architecture.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/status.h"

namespace strata {
namespace {

// Of mixtures with experts that compute every row, and first layers without any.
#define OF_DEEPSEEKS_EXPERTS                                            \
  " expert_shared_count expert_group_count expert_group_used_count "    \
  "expert_gating_func "                                                 \
  "leading_dense_block_count expert_weights_scale expert_weights_norm " \
  "nextn_predict_layers "                                               \
  "expert_shared_feed_forward_length "
#define OF_LATENTS                                                         \
  "attention.q_lora_rank attention.kv_lora_rank attention.key_length_mla " \
  "attention.value_length_mla rope.scaling.yarn_log_multiplier "
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .model_type = "llama", .pairs = true},
    {.name = "llama", .model_type = "mixtral", .pairs = true},
    {.name = "qwen2", .model_type = "qwen2"},
    {.name = "qwen3", .model_type = "qwen3"},
    {.name = "qwen3moe", .model_type = "qwen3_moe"},
    {.name = "smollm3", .model_type = "smollm3", .pairs = true},
    {.name = "granite", .model_type = "granite", .pairs = true},
    {.name = "olmo2", .model_type = "olmo3", .with_key = "attention.sliding_window"},
    {.name = "olmo2", .model_type = "olmo2"},
    {.name = "phi3", .model_type = "phi3"},
    {.name = "gemma", .model_type = "gemma"},
    {.name = "gemma2", .model_type = "gemma2", .wide_layers = 46},
    {.name = "gemma3", .model_type = "gemma3_text", .wide_layers = 62},
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .mlp_norm = "post_attention_norm",
     .yarn_truncates = false},
    {.name = "mistral3",
     .model_type = "ministral3",
     .pairs = true,
     .reads = " attention.temperature_scale rope.scaling.yarn_log_multiplier ",
     .yarn_log_unit = 1},
    {.name = "qwen2vl", .model_type = "qwen2_5_vl_text", .sections = true},
    {.name = "qwen3vl", .model_type = "qwen3_vl_text", .sections = true},
    {.name = "qwen3vlmoe", .model_type = "qwen3_moe", .sections = true},
    {.name = "seed_oss", .model_type = "seed_oss", .mlp_norm = "post_attention_norm"},
    {.name = "glm4", .model_type = "glm4"},
    {.name = "glm4moe",
     .model_type = "glm4_moe",
     .mlp_norm = "post_attention_norm",
     .gating = kSigmoidGating,
     .absent_gating = kSigmoidGating,
     .reads = OF_DEEPSEEKS_EXPERTS},
    {.name = "minimax-m2",
     .model_type = "minimax_m2",
     .gating = kSigmoidGating,
     .reads = " expert_gating_func "},
    {.name = "deepseek2",
     .model_type = "deepseek_v2",
     .gating = kSoftmaxGating,
     .reads = OF_DEEPSEEKS_EXPERTS OF_LATENTS,
     .yarn_log_unit = 0.1},
    {.name = "deepseek2",
     .model_type = "deepseek_v3",
     .gating = kSigmoidGating,
     .reads = OF_DEEPSEEKS_EXPERTS OF_LATENTS,
     .yarn_log_unit = 0.1},
};
#undef OF_DEEPSEEKS_EXPERTS
#undef OF_LATENTS

struct NamePair {
  const char* gguf;
  const char* name;
};
constexpr NamePair kTopNames[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr NamePair kAttentionNames[] = {
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
};
constexpr NamePair kLatentNames[] = {
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
    {"attn_output", "self_attn.o_proj"},
};
constexpr NamePair kFusedNames[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr NamePair kDenseNames[] = {
    {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}};
constexpr NamePair kFusedDenseNames[] = {{"ffn_up", "mlp.gate_up_proj"},
                                         {"ffn_down", "mlp.down_proj"}};

template <size_t kCount>
std::string Look(const NamePair (&names)[kCount], std::string_view gguf) {
  for (const NamePair& pair : names) {
    if (gguf == pair.gguf) {
      return pair.name;
    }
  }
  return "";
}

// The number that `text` is, all of it, as a converter writes it.
bool IsNumber(std::string_view text, uint32_t* number) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), number) &&
         text == absl::StrCat(*number);
}

// Of the norms of a layer's branches.
std::string NormPath(const GgufArchitecture& architecture, std::string_view module) {
  const LayerNormNames norms = NormNames(architecture.family->norm_places);
  const char* const name = module == "attn_norm"             ? norms.before_attention
                           : module == architecture.mlp_norm ? norms.before_mlp
                           : module == "post_attention_norm" ? norms.after_attention
                           : module == "post_ffw_norm"       ? norms.after_mlp
                                                             : nullptr;
  return name == nullptr ? "" : name;
}

// Of the expert that computes every row.
std::string SharedExpertPath(std::string_view module) {
  const ExpertPaths paths = SharedExpertPaths("");
  return module == "ffn_gate_shexp"   ? paths.gate
         : module == "ffn_up_shexp"   ? paths.up
         : module == "ffn_down_shexp" ? paths.down
                                      : "";
}

// Of a mixture's router, of the tensors of all experts, or, as older files have them, of one's.
std::string ExpertPath(ExpertNames names, std::string_view module) {
  if (module == "ffn_gate_inp") {
    return RouterPath(names, "");
  }
  const size_t dot = module.find('.');
  uint32_t expert = 0;
  const bool stacked = dot == std::string_view::npos;
  if (!stacked && (names == ExpertNames::kGptOss || !IsNumber(module.substr(dot + 1), &expert))) {
    return "";
  }
  const ExpertPaths paths =
      stacked ? StackedExpertPaths(names, "") : ExpertPathsOf(names, "", expert);
  const std::string_view kind = module.substr(0, dot);
  const std::string end = stacked ? "_exps" : "";
  return kind == absl::StrCat("ffn_gate", end)   ? paths.gate
         : kind == absl::StrCat("ffn_up", end)   ? paths.up
         : kind == absl::StrCat("ffn_down", end) ? paths.down
                                                 : "";
}

// Below "model.layers.N."; "" where the architecture has no such module.
std::string LayerPath(const GgufArchitecture& architecture, std::string_view module) {
  const Family& family = *architecture.family;
  std::string path = NormPath(architecture, module);
  if (path.empty()) {
    path = family.latent  ? Look(kLatentNames, module)
           : family.fused ? Look(kFusedNames, module)
                          : Look(kAttentionNames, module);
  }
  if (path.empty() && architecture.mixture()) {
    path = ExpertPath(family.experts.names, module);
  }
  if (path.empty() && family.experts.deepseek) {
    path = SharedExpertPath(module);
  }
  // DeepSeek's first layers have none. No converter writes other mixtures with such.
  const bool dense = !architecture.mixture() || family.experts.deepseek;
  if (path.empty() && dense && !family.fused) {
    path = family.fused_mlp ? Look(kFusedDenseNames, module) : Look(kDenseNames, module);
  }
  return path;
}

// "" where the architecture has no such tensor.
std::string NameOf(const GgufArchitecture& architecture, std::string_view tensor) {
  const size_t dot = tensor.rfind('.');
  if (dot == std::string_view::npos) {
    return "";
  }
  const std::string kind(tensor.substr(dot));
  std::string_view module = tensor.substr(0, dot);
  if (kind != ".weight" && kind != ".bias") {
    return "";
  }
  if (!module.starts_with("blk.")) {
    const std::string name = Look(kTopNames, module);
    return name.empty() ? "" : name + kind;
  }
  module.remove_prefix(4);
  const size_t end = module.find('.');
  uint32_t layer = 0;
  if (end == std::string_view::npos || !IsNumber(module.substr(0, end), &layer)) {
    return "";
  }
  module.remove_prefix(end + 1);
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  if (architecture.family->sinks && module == "attn_sinks" && kind == ".weight") {
    return prefix + "self_attn.sinks";
  }
  if (architecture.gating == kSigmoidGating && module == "exp_probs_b" && kind == ".bias") {
    return CorrectionName(architecture.family->experts.names, prefix);
  }
  const std::string path = LayerPath(architecture, module);
  return path.empty() ? "" : prefix + path + kind;
}

}  // namespace

bool GgufArchitecture::Reads(std::string_view key) const {
  return std::string_view(reads).find(absl::StrCat(" ", std::string(key), " ")) !=
         std::string_view::npos;
}

std::string GgufArchitecture::Key(std::string_view key) const {
  return absl::StrCat(name, ".", std::string(key));
}

absl::StatusOr<GgufArchitecture> FindGgufArchitecture(const GgufHeader& header) {
  GgufReader reader(&header);
  const std::string name = reader.String("general.architecture", "");
  const std::string count_key = name + ".expert_count";
  const std::string gating_key = name + ".expert_gating_func";
  const uint64_t experts = reader.Uint(count_key, 0, UINT32_MAX, 0);
  const uint64_t gating = reader.Uint(gating_key, 0, UINT32_MAX, 0);
  RETURN_IF_ERROR(reader.status());
  std::string unfit;  // The key that no row of the name fits.
  bool known = false;
  for (GgufArchitecture one : kArchitectures) {
    if (name != one.name) {
      continue;
    }
    known = true;
    const nlohmann::json config = {{"model_type", one.model_type}};
    ASSIGN_OR_RETURN(one.family, FindFamily(config));
    if (one.mixture() != (experts != 0)) {
      unfit = absl::StrCat("key ", Quoted(count_key), " ", experts);
    } else if (one.gating != 0 && one.gating != (gating == 0 ? one.absent_gating : gating)) {
      unfit = absl::StrCat("key ", Quoted(gating_key), " ", gating);
    } else if (one.with_key == nullptr || reader.Find(one.Key(one.with_key)) != nullptr) {
      return one;
    }
  }
  return UnsupportedModel(known ? unfit : "general.architecture " + Quoted(name));
}

uint64_t GgufLayers(const GgufArchitecture& architecture, const GgufHeader& header) {
  GgufReader reader(&header);
  const uint64_t all = reader.Uint(architecture.Key("block_count"), 0, UINT32_MAX, 0);
  const uint64_t guess =
      architecture.Reads("nextn_predict_layers")
          ? reader.Uint(architecture.Key("nextn_predict_layers"), 0, UINT32_MAX, 0)
          : 0;
  return all - std::min(all, guess);
}

bool IsBehindGgufLayers(std::string_view tensor, uint64_t layers) {
  if (!tensor.starts_with("blk.")) {
    return false;
  }
  tensor.remove_prefix(4);
  uint32_t layer = 0;
  return IsNumber(tensor.substr(0, tensor.find('.')), &layer) && layer >= layers;
}

absl::StatusOr<std::string> CheckpointName(const GgufArchitecture& architecture,
                                           std::string_view tensor) {
  std::string name = NameOf(architecture, tensor);
  if (!name.empty()) {
    return name;
  }
  // A name stands for dense models and for mixtures, and a key decides which of them this is.
  std::string problem = absl::StrCat("tensor ", Quoted(tensor));
  for (GgufArchitecture other : kArchitectures) {
    const nlohmann::json config = {{"model_type", other.model_type}};
    ASSIGN_OR_RETURN(other.family, FindFamily(config));
    if (std::string_view(architecture.name) == other.name && !NameOf(other, tensor).empty()) {
      absl::StrAppend(&problem, architecture.mixture() ? " with" : " without", " experts by key ",
                      Quoted(architecture.Key("expert_count")));
    }
  }
  return UnsupportedModel(problem);
}

}  // namespace strata
