// config.json and generation_config.json to a ModelSpec. Names and defaults: the configuration
// classes of transformers.
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/quantization_config.h"
#include "common/checkpoint/rope_config.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeads = 1u << 14;
constexpr uint64_t kMaxHeadDim = 4096;
constexpr uint64_t kMaxProjection = uint64_t{kMaxHiddenSize} * 4;
constexpr uint64_t kDefaultContext = 2048;
constexpr double kDefaultNormEps = 1e-6;

Error Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_MODEL",
               what + " is not supported yet");
}

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

absl::Status CheckFamily(const json& config) {
  FieldReader reader(&config, "");
  const json* architectures = reader.Find("architectures");
  const std::string type = reader.String("model_type", "");
  RETURN_IF_ERROR(reader.status());
  if (type.empty() && architectures == nullptr) {
    reader.Fail("model_type", "is missing");
    return reader.status();
  }
  if (!type.empty() && type != "llama") {
    return Unsupported("model_type " + Quoted(type));
  }
  if (architectures == nullptr) {
    return absl::OkStatus();
  }
  if (!architectures->is_array() || architectures->size() != 1 ||
      !(*architectures)[0].is_string()) {
    reader.Fail("architectures", QuotedValue(*architectures) + " is not a list of one name");
    return reader.status();
  }
  const auto& name = (*architectures)[0].get_ref<const std::string&>();
  if (name != "LlamaForCausalLM") {
    return Unsupported("architecture " + Quoted(name));
  }
  return absl::OkStatus();
}

// Everything of other families and of the checkpoint's own code.
absl::Status CheckNothingElse(const json& config) {
  FieldReader reader(&config, "");
  for (const Refused& refused : kRefused) {
    const json* value = reader.Find(refused.name);
    if (value != nullptr && !IsNeutral(*value, refused.neutral)) {
      return Unsupported(absl::StrCat(refused.name, " ", QuotedValue(*value)));
    }
  }
  const json* window = reader.Find("sliding_window");
  if (window != nullptr && !IsNeutral(*window, 0) && reader.Bool("use_sliding_window", true)) {
    return Unsupported("sliding_window " + QuotedValue(*window));
  }
  for (const char* name : {"hidden_act", "hidden_activation"}) {
    const std::string activation = reader.String(name, "silu");
    if (activation != "silu") {
      return Unsupported(absl::StrCat(name, " ", Quoted(activation)));
    }
  }
  if (const json* kinds = reader.Find("layer_types"); kinds != nullptr) {
    for (const json& kind : *kinds) {
      if (!kind.is_string() || kind.get_ref<const std::string&>() != "full_attention") {
        return Unsupported("layer_types " + QuotedValue(kind));
      }
    }
  }
  if (const json* map = reader.Find("auto_map"); map != nullptr && map->is_object()) {
    for (const auto& [key, unused] : map->items()) {
      if (key.starts_with("AutoModel")) {
        return Unsupported("auto_map " + Quoted(key) + " (a checkpoint's own code)");
      }
    }
  }
  return reader.status();
}

absl::StatusOr<AttentionSpec> ParseAttention(const json& config, uint64_t hidden) {
  FieldReader reader(&config, "");
  AttentionSpec attention;
  const uint64_t heads = reader.Uint("num_attention_heads", 1, kMaxHeads);
  const uint64_t kv_heads = reader.Uint("num_key_value_heads", 1, kMaxHeads, heads);
  if (heads % kv_heads != 0) {
    reader.Fail("num_key_value_heads",
                absl::StrCat(kv_heads, " does not divide ", "num_attention_heads ", heads));
  }
  if (!reader.Has("head_dim") && hidden % heads != 0) {
    reader.Fail("num_attention_heads", absl::StrCat(heads, " does not divide hidden_size ", hidden,
                                                    ", and there is no head_dim"));
  }
  const uint64_t head_dim = reader.Uint("head_dim", 1, kMaxHeadDim, hidden / heads);
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > kMaxHeadDim) {
    reader.Fail("head_dim", absl::StrCat(head_dim, " is not even and in [2, ", kMaxHeadDim,
                                         "]; rotary embedding pairs dimensions"));
  }
  if (heads * head_dim > kMaxProjection) {
    reader.Fail("head_dim", absl::StrCat(head_dim, " times num_attention_heads ", heads,
                                         " is above ", kMaxProjection));
  }
  const bool bias = reader.Bool("attention_bias", false);
  attention.qk_rows_in_pairs = reader.Bool("qk_rows_in_pairs", false);
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(attention.rope, ParseRopeConfig(config, static_cast<uint32_t>(head_dim)));
  attention.heads = static_cast<uint32_t>(heads);
  attention.kv_heads = static_cast<uint32_t>(kv_heads);
  attention.head_dim = static_cast<uint32_t>(head_dim);
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  attention.qkv_bias = bias;
  attention.out_bias = bias;
  return attention;
}

// An id, a list of ids, or null: none.
std::vector<uint32_t> ReadIds(FieldReader* reader, const char* name) {
  std::vector<uint32_t> ids;
  const json* value = reader->Find(name);
  if (value == nullptr) {
    return ids;
  }
  const auto add = [&](const json& id) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabSize) {
      reader->Fail(name, absl::StrCat(QuotedValue(id), " is not a token id"));
      return;
    }
    ids.push_back(static_cast<uint32_t>(id.get<uint64_t>()));
  };
  if (!value->is_array()) {
    add(*value);
    return ids;
  }
  for (const json& id : *value) {
    add(id);
  }
  return ids;
}

absl::Status ReadSpecialIds(const json& config, std::string_view generation_json, ModelSpec* spec) {
  FieldReader reader(&config, "");
  std::vector<uint32_t> bos = ReadIds(&reader, "bos_token_id");
  spec->eos_ids = ReadIds(&reader, "eos_token_id");
  RETURN_IF_ERROR(reader.status());
  if (!generation_json.empty()) {
    ASSIGN_OR_RETURN(const json generation,
                     ParseJsonObject(generation_json, "generation_config.json", "INVALID_CONFIG",
                                     kMaxConfigBytes));
    FieldReader over(&generation, "generation_config.json: ");
    std::vector<uint32_t> eos = ReadIds(&over, "eos_token_id");
    if (!eos.empty()) {
      spec->eos_ids = std::move(eos);
    }
    if (bos.empty()) {
      bos = ReadIds(&over, "bos_token_id");
    }
    RETURN_IF_ERROR(over.status());
  }
  if (!bos.empty()) {
    spec->bos_id = bos.front();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelConfig(std::string_view config_json,
                                           std::string_view generation_config_json) {
  ASSIGN_OR_RETURN(const json config,
                   ParseJsonObject(config_json, "config.json", "INVALID_CONFIG", kMaxConfigBytes));
  RETURN_IF_ERROR(CheckFamily(config));
  RETURN_IF_ERROR(CheckNothingElse(config));
  FieldReader reader(&config, "");
  ModelSpec spec;
  spec.family = "llama";
  spec.hidden = static_cast<uint32_t>(reader.Uint("hidden_size", 1, kMaxHiddenSize));
  spec.vocab = static_cast<uint32_t>(reader.Uint("vocab_size", 1, kMaxVocabSize));
  spec.context = static_cast<uint32_t>(
      reader.Uint("max_position_embeddings", 1, kMaxContextTokens, kDefaultContext));
  spec.tied_head = reader.Bool("tie_word_embeddings", false);
  const uint64_t layers = reader.Uint("num_hidden_layers", 1, kMaxLayers);
  LayerSpec layer;
  layer.mlp.ffn = static_cast<uint32_t>(reader.Uint("intermediate_size", 1, kMaxProjection));
  layer.mlp.bias = reader.Bool("mlp_bias", false);
  layer.norm_eps = static_cast<float>(reader.Number("rms_norm_eps", 0, 1, kDefaultNormEps));
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(layer.attention, ParseAttention(config, spec.hidden));
  spec.final_norm_eps = layer.norm_eps;
  spec.layers.assign(layers, layer);
  spec.kv_groups.push_back(KvGroupSpec{});
  ASSIGN_OR_RETURN(spec.quantization, ParseQuantization(config));
  RETURN_IF_ERROR(ReadSpecialIds(config, generation_config_json, &spec));
  return spec;
}

}  // namespace strata
