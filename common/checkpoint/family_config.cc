// What rows of the table say of a config.json.
#include "common/checkpoint/family_config.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

// A field that changes what other models compute, and the number that means that it does not.
struct Refused {
  const char* name;
  double neutral;
};

// null, false and empty values are neutral too.
constexpr Refused kRefused[] = {
    {"compression_config", 0},
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"rope_ratio", 1},
    {"rope_local_base_freq", 0},
    {"rope_interleaved", 0},
    {"no_rope_layers", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"query_pre_attn_scalar", 0},
    {"attention_multiplier", 0},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"scale_emb", 1},
    {"scale_depth", 0},
    {"dim_model_base", 0},
    {"attention_chunk_size", 0},
    {"attn_temperature_tuning", 0},
    {"use_bidirectional_attention", 0},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"n_shared_experts", 0},
    {"q_lora_rank", 0},
    {"kv_lora_rank", 0},
    {"lm_head_bias", 0},
    {"qkv_bias", 0},
    {"use_bias", 0},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"qk_norm", 0},
    {"clip_qkv", 0},
    {"alibi", 0},
    {"parallel_residual", 0},
    {"use_parallel_residual", 0},
    {"add_cross_attention", 0},
    {"per_layer_config", 0},
    {"is_encoder_decoder", 0},
    {"num_nextn_predict_layers", 0},
    {"text_config", 0},
    {"vision_config", 0},
    {"audio_config", 0},
    {"speech_config", 0},
};

bool IsNeutral(const json& value, double neutral) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) {
    return true;
  }
  if (value.is_number()) {
    return value.get<double>() == neutral;
  }
  return (value.is_structured() || value.is_string()) && value.empty();
}

// The row with this model_type (or, empty, this architecture), or null.
absl::StatusOr<const Family*> FindRow(const json& config, std::string_view type,
                                      std::string_view architecture) {
  const auto version = config.find("version");
  // A number in some files.
  const std::string of_config = version == config.end() ? ""
                                : version->is_string()  ? version->get<std::string>()
                                : version->is_number()  ? absl::StrCat(version->get<double>())
                                                        : version->dump();
  const Family* other_version = nullptr;
  for (const Family& family : Families()) {
    if (type.empty() ? architecture != family.architecture : type != family.model_type) {
      continue;
    }
    if (family.version == nullptr || of_config == family.version) {
      return &family;
    }
    other_version = &family;
  }
  if (other_version != nullptr) {
    return UnsupportedModel(absl::StrCat("version ", Quoted(of_config), " of model_type ",
                                         Quoted(other_version->model_type)));
  }
  return nullptr;
}

}  // namespace

bool Reads(const Family& family, std::string_view field) {
  const auto& counts = kExpertCountFields;
  const bool is_count = std::find(std::begin(counts), std::end(counts), field) != std::end(counts);
  return (is_count && family.experts.experts_field != nullptr) ||
         std::string_view(family.reads).find(absl::StrCat(" ", std::string(field), " ")) !=
             std::string_view::npos;
}

absl::StatusOr<const Family*> FindFamily(const json& config) {
  FieldReader reader(&config, "");
  const json* architectures = reader.Find("architectures");
  const std::string type = reader.String("model_type", "");
  RETURN_IF_ERROR(reader.status());
  if (type.empty() && architectures == nullptr) {
    reader.Fail("model_type", "is missing");
    return reader.status();
  }
  const Family* by_type = nullptr;
  if (!type.empty()) {
    ASSIGN_OR_RETURN(by_type, FindRow(config, type, ""));
  }
  if (!type.empty() && by_type == nullptr) {
    return UnsupportedModel("model_type " + Quoted(type));
  }
  if (architectures == nullptr) {
    return by_type;
  }
  if (!architectures->is_array() || architectures->size() != 1 ||
      !(*architectures)[0].is_string()) {
    reader.Fail("architectures", QuotedValue(*architectures) + " is not a list of one name");
    return reader.status();
  }
  const auto& name = (*architectures)[0].get_ref<const std::string&>();
  if (by_type != nullptr && name == by_type->architecture) {
    return by_type;  // Others may have the same.
  }
  ASSIGN_OR_RETURN(const Family* by_architecture, FindRow(config, "", name));
  if (by_architecture == nullptr) {
    return UnsupportedModel("architectures: " + Quoted(name));
  }
  if (by_type != nullptr && by_type != by_architecture) {
    return UnsupportedModel(
        absl::StrCat("architecture ", Quoted(name), " of model_type ", Quoted(type)));
  }
  return by_architecture;
}

absl::Status CheckNothingElse(const json& config, const Family& family) {
  FieldReader reader(&config, "");
  for (const Refused& refused : kRefused) {
    const json* value = reader.Find(refused.name);
    if (value != nullptr && !IsNeutral(*value, refused.neutral) && !Reads(family, refused.name)) {
      return UnsupportedModel(absl::StrCat(refused.name, " ", QuotedValue(*value)));
    }
  }
  const json* window = reader.Find("sliding_window");
  const bool refuses_windows =
      family.windows == WindowRule::kNone || family.windows == WindowRule::kRefused;
  if (refuses_windows && window != nullptr && !IsNeutral(*window, 0) &&
      reader.Bool("use_sliding_window", true)) {
    return UnsupportedModel("sliding_window " + QuotedValue(*window));
  }
  std::string activation = reader.String(family.activation_field, family.activation);
  if (family.activation_too != nullptr && activation == family.activation_too) {
    activation = family.activation;
  }
  if (activation != "silu" && activation != family.activation) {
    return UnsupportedModel(absl::StrCat(family.activation_field, " ", Quoted(activation)));
  }
  // One that the family does not read says that something is different.
  if (const std::string other = reader.String("hidden_activation", activation);
      other != activation) {
    return UnsupportedModel(absl::StrCat("hidden_activation ", Quoted(other), " beside ",
                                         family.activation_field, " ", Quoted(activation)));
  }
  if (!family.reads_attention_bias && reader.Bool("attention_bias", false)) {
    return UnsupportedModel("attention_bias true");
  }
  if (!reader.Bool("is_causal", true)) {
    return UnsupportedModel("is_causal false");
  }
  if (!family.reads_mlp_bias && reader.Bool("mlp_bias", false)) {
    return UnsupportedModel("mlp_bias true");
  }
  if (const json* map = reader.Find("auto_map"); map != nullptr && map->is_object()) {
    const std::string architecture = absl::StrCat(".", family.architecture);
    const std::string body = architecture.substr(0, architecture.rfind("ForCausalLM")) + "Model";
    for (const auto& [key, value] : map->items()) {
      // A copy of what transformers has by now, under the same name, is none; "AutoModel" is it
      // without the head.
      const std::string name = value.is_string() ? value.get<std::string>() : "";
      const bool same =
          name.ends_with(architecture) || (key == "AutoModel" && name.ends_with(body));
      if (key.starts_with("AutoModel") && !same) {
        return UnsupportedModel("auto_map " + Quoted(key) + " (a checkpoint's own code)");
      }
    }
  }
  return reader.status();
}

}  // namespace strata
