// Names and defaults: the configuration classes of transformers.
#include "common/checkpoint/family_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .name = "llama",
     .reads_mlp_bias = true,
     .yarn = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .name = "mistral",
     .kv_heads_required = true,
     .context = 131072,
     .reads_attention_bias = false,
     .windows = WindowRule::kAll,
     .window = 4096},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .name = "qwen2",
     .kv_heads_required = true,
     .context = 32768,
     .qkv_bias = true,
     .reads_attention_bias = false,
     .windows = WindowRule::kFlagged,
     .window = 4096,
     .reads_layer_types = true,
     .yarn = true},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .name = "qwen3",
     .head_dim = 128,
     .kv_heads_required = true,
     .context = 32768,
     .qk_norm = QkNorm::kHead,
     .windows = WindowRule::kFlagged,
     .window = 4096,
     .reads_layer_types = true,
     .yarn = true},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .name = "smollm3",
     .reads = " no_rope_layers no_rope_layer_interval ",
     .kv_heads_required = true,
     .context = 32768,
     .theta = 2e6,
     .tied = true,
     .reads_mlp_bias = true,
     .windows = WindowRule::kRefused},
    {.model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .name = "granite",
     .reads = " attention_multiplier embedding_multiplier residual_multiplier logits_scaling ",
     .reads_mlp_bias = true},
    {.model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .name = "olmo2",
     .norm_eps = 1e-5,
     .norm_places = NormPlaces::kAfter,
     .qk_norm = QkNorm::kProjection},
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .name = "phi3",
     .reads = " partial_rotary_factor ",
     .context = 4096,
     .norm_eps = 1e-5,
     .reads_attention_bias = false,
     .fused = true,
     .windows = WindowRule::kAll,
     .partial_rotary = true,
     .long_rope = true},
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .name = "gemma2",
     .reads = " query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping ",
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .context = 8192,
     .tied = true,
     .norm = NormKind::kRmsOnePlus,
     .norm_places = NormPlaces::kAround,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .windows = WindowRule::kPattern,
     .window = 4096,
     .window_pattern = 2,
     .reads_layer_types = true,
     .scales_embedding = true,
     .score_divisor = 256,
     .score_cap = 50,
     .logit_cap = 30},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .name = "gemma3",
     .reads = " query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping "
              "rope_local_base_freq ",
     .heads = 8,
     .vocab = 262208,
     .kv_heads = 4,
     .head_dim = 256,
     .context = 131072,
     .theta = 1e6,
     .tied = true,
     .norm = NormKind::kRmsOnePlus,
     .norm_places = NormPlaces::kAround,
     .qk_norm = QkNorm::kHead,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .windows = WindowRule::kPattern,
     .window = 4096,
     .window_pattern = 6,
     .reads_layer_types = true,
     .scales_embedding = true,
     .score_divisor = 256,
     .local_theta = 1e4},
    // Language models with ears and eyes, of which this is the language model: Qwen2's, Qwen3's.
    {.model_type = "minicpmo",
     .architecture = "MiniCPMO",
     .name = "minicpm-o",
     .version = "2.6",
     .reads = " vision_config audio_config ",
     .kv_heads_required = true,
     .context = 32768,
     .qkv_bias = true,
     .reads_attention_bias = false,
     .windows = WindowRule::kFlagged,
     .window = 4096,
     .reads_layer_types = true,
     .tensor_prefix = "llm."},
    {.model_type = "minicpmo",
     .architecture = "MiniCPMO",
     .name = "minicpm-o",
     .version = "4.5",
     .reads = " vision_config audio_config ",
     .head_dim = 128,
     .kv_heads_required = true,
     .context = 32768,
     .qk_norm = QkNorm::kHead,
     .windows = WindowRule::kFlagged,
     .window = 4096,
     .reads_layer_types = true,
     .tensor_prefix = "llm."},
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .name = "mixtral",
     .reads = " num_local_experts ",
     .kv_heads_required = true,
     .context = 131072,
     .norm_eps = 1e-5,
     .theta = 1e6,
     .reads_attention_bias = false,
     .windows = WindowRule::kAll,
     .experts = {.experts_field = "num_local_experts",
                 .experts = 8,
                 .used = 2,
                 .ffn_field = "intermediate_size",
                 .names = ExpertNames::kBlockSparse,
                 .renormalizes = true}},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .name = "qwen3_moe",
     .reads = " num_experts ",
     .kv_heads_required = true,
     .context = 32768,
     .qk_norm = QkNorm::kHead,
     .windows = WindowRule::kRefused,
     .experts = {.experts_field = "num_experts",
                 .experts = 128,
                 .used = 8,
                 .ffn_field = "moe_intermediate_size",
                 .ffn = 768,
                 .chooses_layers = true},
     .yarn = true},
    {.model_type = "deepseek_v2",
     .architecture = "DeepseekV2ForCausalLM",
     .name = "deepseek_v2",
     .reads = " q_lora_rank kv_lora_rank n_routed_experts n_shared_experts ",
     .reads_attention_bias = false,
     .experts = {.experts_field = "n_routed_experts",
                 .experts = 64,
                 .ffn_field = "moe_intermediate_size",
                 .ffn = 1407,
                 .deepseek = true},
     .latent = true,
     .yarn = true},
    {.model_type = "deepseek_v3",
     .architecture = "DeepseekV3ForCausalLM",
     .name = "deepseek_v3",
     // Layers that predict further tokens are not loaded.
     .reads = " q_lora_rank kv_lora_rank n_routed_experts n_shared_experts "
              "num_nextn_predict_layers ",
     .context = 4096,
     .reads_attention_bias = false,
     .experts = {.experts_field = "n_routed_experts",
                 .experts = 256,
                 .used = 8,
                 .ffn_field = "moe_intermediate_size",
                 .ffn = 2048,
                 .scores = RouterScores::kSigmoid,
                 .deepseek = true},
     .latent = true,
     .yarn = true},
    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .name = "gpt_oss",
     .reads = " num_local_experts ",
     .heads = 64,
     .vocab = 201088,
     .kv_heads = 8,
     .head_dim = 64,
     .context = 131072,
     .norm_eps = 1e-5,
     .theta = 1.5e5,
     .attention_bias = true,
     .windows = WindowRule::kAlternating,
     .window = 128,
     .reads_layer_types = true,
     .experts = {.experts_field = "num_local_experts",
                 .experts = 128,
                 .used = 4,
                 .ffn_field = "intermediate_size",
                 .names = ExpertNames::kGptOss,
                 .scores = RouterScores::kSoftmaxOfChosen,
                 .biases = true,
                 .clamps = true},
     .yarn = true,
     .sinks = true},
    {.model_type = "gemma3",
     .architecture = "Gemma3ForConditionalGeneration",
     .name = "gemma3",
     .nested_prefix = "language_model."},
};

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

bool Reads(const Family& family, const char* field) {
  return std::string_view(family.reads).find(absl::StrCat(" ", field, " ")) !=
         std::string_view::npos;
}

// The window of the layers that have one; 0: there is none.
uint32_t ReadWindow(const json& config, const Family& family, FieldReader* reader) {
  if (family.windows == WindowRule::kNone || family.windows == WindowRule::kRefused) {
    return 0;
  }
  if (family.windows == WindowRule::kFlagged && !reader->Bool("use_sliding_window", false)) {
    return 0;
  }
  if (config.contains("sliding_window") && config["sliding_window"].is_null()) {
    return 0;
  }
  return static_cast<uint32_t>(
      reader->Has("sliding_window") || family.window == 0
          ? reader->Uint("sliding_window", 1, kMaxContextTokens, family.window)
          : family.window);
}

// By layer, whether it has the window, by the family's rule.
std::vector<bool> SlidingByRule(const Family& family, uint64_t layers, bool any,
                                FieldReader* reader) {
  std::vector<bool> slides(layers, any && family.windows == WindowRule::kAll);
  if (family.windows == WindowRule::kFlagged) {
    const uint64_t first = reader->Uint("max_window_layers", 0, UINT32_MAX, 28);
    for (uint64_t i = first; any && i < layers; ++i) {
      slides[i] = true;
    }
  }
  for (uint64_t i = 0; any && family.windows == WindowRule::kAlternating && i < layers; i += 2) {
    slides[i] = true;
  }
  if (family.windows == WindowRule::kPattern) {
    const uint64_t pattern =
        reader->Uint("sliding_window_pattern", 1, kMaxLayers, family.window_pattern);
    for (uint64_t i = 0; any && i < layers; ++i) {
      slides[i] = (i + 1) % pattern != 0;
    }
  }
  return slides;
}

// What layer_types says of each layer.
absl::Status ReadLayerTypes(const json& kinds, const Family& family, bool any,
                            std::vector<bool>* slides) {
  if (!kinds.is_array() || kinds.size() != slides->size()) {
    return Error(
        absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
        absl::StrCat("layer_types is not a list of num_hidden_layers ", slides->size(), " names"));
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const json& kind = kinds[i];
    const std::string name = kind.is_string() ? kind.get<std::string>() : "";
    const bool sliding = name == "sliding_attention";
    const bool contradicts = sliding && !any;
    if ((!sliding && name != "full_attention") || contradicts ||
        (!family.reads_layer_types && sliding != (*slides)[i])) {
      return UnsupportedModel(absl::StrCat("layer_types ", QuotedValue(kind), " of layer ", i,
                                           contradicts ? " without a sliding_window" : ""));
    }
    (*slides)[i] = sliding;
  }
  return absl::OkStatus();
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
  for (const Family& family : kFamilies) {
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
  const bool gated = std::string_view(family.activation_field) == "hidden_activation";
  const std::string activation = reader.String(family.activation_field, family.activation);
  if (activation != "silu" && (!gated || activation != family.activation)) {
    return UnsupportedModel(absl::StrCat(family.activation_field, " ", Quoted(activation)));
  }
  // One that the family does not read says that something is different.
  if (const std::string other = reader.String("hidden_activation", "silu");
      !gated && other != "silu") {
    return UnsupportedModel("hidden_activation " + Quoted(other));
  }
  if (!family.reads_attention_bias && reader.Bool("attention_bias", false)) {
    return UnsupportedModel("attention_bias true");
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

absl::StatusOr<std::vector<uint32_t>> ReadWindows(const json& config, const Family& family,
                                                  uint64_t layers, uint64_t context) {
  FieldReader reader(&config, "");
  const uint32_t window = ReadWindow(config, family, &reader);
  std::vector<bool> slides = SlidingByRule(family, layers, window != 0, &reader);
  RETURN_IF_ERROR(reader.status());
  if (const json* kinds = reader.Find("layer_types"); kinds != nullptr) {
    RETURN_IF_ERROR(ReadLayerTypes(*kinds, family, window != 0, &slides));
  }
  std::vector<uint32_t> windows(layers, 0);
  for (uint64_t i = 0; i < layers; ++i) {
    windows[i] = slides[i] && window < context ? window : 0;
  }
  return windows;
}

absl::StatusOr<std::vector<bool>> ReadRotatingLayers(const json& config, const Family& family,
                                                     uint64_t layers) {
  std::vector<bool> rotates(layers, true);
  if (!Reads(family, "no_rope_layers")) {
    return rotates;
  }
  FieldReader reader(&config, "");
  const uint64_t interval = reader.Uint("no_rope_layer_interval", 1, kMaxLayers, 4);
  RETURN_IF_ERROR(reader.status());
  const json* list = reader.Find("no_rope_layers");
  if (list != nullptr && (!list->is_array() || list->size() != layers)) {
    reader.Fail("no_rope_layers",
                absl::StrCat("is not a list of num_hidden_layers ", layers, " numbers"));
    return reader.status();
  }
  for (uint64_t i = 0; i < layers; ++i) {
    if (list == nullptr) {
      rotates[i] = (i + 1) % interval != 0;
      continue;
    }
    const json& flag = (*list)[i];
    if (flag != 0 && flag != 1) {
      reader.Fail("no_rope_layers", "holds " + QuotedValue(flag) + ", which is not 0 or 1");
      return reader.status();
    }
    rotates[i] = flag == 1;  // Whatever the name says.
  }
  return rotates;
}

}  // namespace strata
