#include "common/checkpoint/gguf_architecture.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .model_type = "llama", .pairs = true},
    {.name = "llama", .model_type = "mixtral", .pairs = true},
    {.name = "qwen2", .model_type = "qwen2"},
    {.name = "qwen3", .model_type = "qwen3"},
    {.name = "qwen3moe", .model_type = "qwen3_moe"},
    {.name = "smollm3", .model_type = "smollm3", .pairs = true},
    {.name = "granite", .model_type = "granite", .pairs = true},
    {.name = "olmo2", .model_type = "olmo2"},
    {.name = "phi3", .model_type = "phi3"},
    {.name = "gemma2", .model_type = "gemma2", .wide_layers = 46},
    {.name = "gemma3", .model_type = "gemma3_text", .wide_layers = 62},
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .mlp_norm = "post_attention_norm",
     .yarn_truncates = false},
};

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
constexpr NamePair kFusedNames[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr NamePair kDenseNames[] = {
    {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}};

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
    path = family.fused ? Look(kFusedNames, module) : Look(kAttentionNames, module);
  }
  if (path.empty() && !family.fused) {
    path = architecture.mixture() ? ExpertPath(family.experts.names, module)
                                  : Look(kDenseNames, module);
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
  const std::string path = LayerPath(architecture, module);
  return path.empty() ? "" : prefix + path + kind;
}

}  // namespace

std::string GgufArchitecture::Key(std::string_view key) const {
  return absl::StrCat(name, ".", std::string(key));
}

absl::StatusOr<GgufArchitecture> FindGgufArchitecture(const GgufHeader& header) {
  GgufReader reader(&header);
  const std::string name = reader.String("general.architecture", "");
  const std::string key = name + ".expert_count";
  const uint64_t experts = reader.Uint(key, 0, UINT32_MAX, 0);
  RETURN_IF_ERROR(reader.status());
  bool known = false;
  for (GgufArchitecture one : kArchitectures) {
    if (name != one.name) {
      continue;
    }
    known = true;
    const nlohmann::json config = {{"model_type", one.model_type}};
    ASSIGN_OR_RETURN(one.family, FindFamily(config));
    if (one.mixture() == (experts != 0)) {
      return one;
    }
  }
  return UnsupportedModel(known ? absl::StrCat("key ", Quoted(key), " ", experts)
                                : "general.architecture " + Quoted(name));
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
