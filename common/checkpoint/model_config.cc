// config.json and generation_config.json to a ModelSpec. Names and defaults: the configuration
// classes of transformers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/expert_config.h"
#include "common/checkpoint/family_config.h"
#include "common/checkpoint/family_fields.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/quantization_config.h"
#include "common/checkpoint/rope_config.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeads = 1u << 14;
constexpr uint64_t kMaxHeadDim = 4096;
constexpr uint64_t kMaxProjection = uint64_t{kMaxHiddenSize} * 4;
constexpr double kMaxMultiplier = 1e6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 0: the field is required.
std::optional<uint64_t> Default(uint64_t value) {
  return value == 0 ? std::nullopt : std::optional<uint64_t>(value);
}

// Heads and their sizes.
absl::Status ReadHeads(const json& config, const Family& family, uint64_t hidden,
                       AttentionSpec* attention) {
  FieldReader reader(&config, "");
  const uint64_t heads = reader.Uint("num_attention_heads", 1, kMaxHeads, Default(family.heads));
  const uint64_t all = family.kv_heads != 0 ? family.kv_heads : heads;
  const uint64_t kv_heads =
      reader.Uint("num_key_value_heads", 1, kMaxHeads,
                  family.kv_heads_required ? std::nullopt : std::optional<uint64_t>(all));
  if (heads % kv_heads != 0) {
    reader.Fail("num_key_value_heads",
                absl::StrCat(kv_heads, " does not divide ", "num_attention_heads ", heads));
  }
  const bool divides = !reader.Has("head_dim") && family.head_dim == 0;
  if (divides && hidden % heads != 0) {
    reader.Fail("num_attention_heads", absl::StrCat(heads, " does not divide hidden_size ", hidden,
                                                    ", and there is no head_dim"));
  }
  const uint64_t head_dim =
      reader.Uint("head_dim", 1, kMaxHeadDim, divides ? hidden / heads : family.head_dim);
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > kMaxHeadDim) {
    reader.Fail("head_dim",
                absl::StrCat(head_dim, divides ? " (hidden_size / num_attention_heads)" : "",
                             " is not even and in [2, ", kMaxHeadDim,
                             "]; rotary embedding pairs dimensions"));
  }
  if (heads * head_dim > kMaxProjection) {
    reader.Fail("head_dim", absl::StrCat(head_dim, " times num_attention_heads ", heads,
                                         " is above ", kMaxProjection));
  }
  attention->heads = static_cast<uint32_t>(heads);
  attention->kv_heads = static_cast<uint32_t>(kv_heads);
  attention->head_dim = static_cast<uint32_t>(head_dim);
  return reader.status();
}

// Heads of multi-head latent attention. None of these sizes is guessed.
absl::Status ReadLatentHeads(const json& config, AttentionSpec* attention) {
  FieldReader reader(&config, "");
  const uint64_t heads = reader.Uint("num_attention_heads", 1, kMaxHeads);
  const auto dim = [&](const char* name) {
    return static_cast<uint32_t>(reader.Uint(name, 1, kMaxHeadDim));
  };
  LatentSpec& latent = attention->latent;
  latent.rank = static_cast<uint32_t>(reader.Uint("kv_lora_rank", 1, kMaxHiddenSize));
  // null: queries are projected at once.
  if (!config.contains("q_lora_rank") || !config["q_lora_rank"].is_null()) {
    latent.query_rank = static_cast<uint32_t>(reader.Uint("q_lora_rank", 1, kMaxHiddenSize));
  }
  latent.nope_dim = dim("qk_nope_head_dim");
  latent.rope_dim = dim("qk_rope_head_dim");
  latent.value_dim = dim("v_head_dim");
  if (latent.rope_dim % 2 != 0) {
    reader.Fail("qk_rope_head_dim", absl::StrCat(latent.rope_dim, " is not even"));
  }
  if (const uint64_t all = reader.Uint("num_key_value_heads", 1, kMaxHeads, heads); all != heads) {
    reader.Fail("num_key_value_heads", absl::StrCat(all, " is not num_attention_heads ", heads));
  }
  if (!reader.Bool("rope_interleave", true)) {
    reader.Fail("rope_interleave", "false is not supported yet");
  }
  const uint64_t widest = std::max<uint64_t>(latent.nope_dim + latent.rope_dim, latent.value_dim);
  if (heads * widest > kMaxProjection || heads * latent.kept() > kMaxProjection) {
    reader.Fail("num_attention_heads",
                absl::StrCat(heads, " heads are too wide: the limit is ", kMaxProjection));
  }
  attention->heads = static_cast<uint32_t>(heads);
  attention->kv_heads = 1;
  attention->head_dim = latent.nope_dim + latent.rope_dim;
  return reader.status();
}

// A cap whose field is absent takes the family's; null is none, and so is infinity.
float ReadCap(const json& config, const char* name, double fallback, FieldReader* reader) {
  if (config.contains(name) && config[name].is_null()) {
    return 0;
  }
  if (!reader->Has(name)) {
    return static_cast<float>(fallback);
  }
  const bool none = std::isinf(reader->Number(name, 1e-6, kInfinity));
  return none ? 0 : static_cast<float>(reader->Number(name, 1e-6, kMaxMultiplier));
}

// What scores are multiplied by, and capped at.
absl::Status ReadScores(const json& config, const Family& family, AttentionSpec* attention) {
  FieldReader reader(&config, "");
  double divisor = attention->head_dim;
  if (family.score_divisor != 0) {
    divisor = reader.Number("query_pre_attn_scalar", 1e-6, kMaxMultiplier, family.score_divisor);
    attention->soft_cap = ReadCap(config, "attn_logit_softcapping", family.score_cap, &reader);
  }
  attention->scale = static_cast<float>(1.0 / std::sqrt(divisor));
  if (std::string_view(family.name) == "granite") {
    attention->scale =
        static_cast<float>(reader.Number("attention_multiplier", 1e-6, kMaxMultiplier, 1.0));
  }
  return reader.status();
}

absl::StatusOr<AttentionSpec> ParseAttention(const json& config, const Family& family,
                                             uint64_t hidden) {
  AttentionSpec attention;
  RETURN_IF_ERROR(family.latent ? ReadLatentHeads(config, &attention)
                                : ReadHeads(config, family, hidden, &attention));
  RETURN_IF_ERROR(ReadScores(config, family, &attention));
  FieldReader reader(&config, "");
  const bool bias = reader.Bool("attention_bias", family.attention_bias);
  attention.qk_rows_in_pairs = reader.Bool("qk_rows_in_pairs", false);
  attention.rotates_neighbours = family.rotates_neighbours;
  attention.qkv_bias = bias || family.qkv_bias;
  attention.out_bias = family.out_bias == OutBias::kAsOthers ? bias
                       : family.out_bias == OutBias::kOwnField
                           ? reader.Bool("attention_out_bias", false)
                           : false;
  if (family.qk_norm_field == nullptr || reader.Bool(family.qk_norm_field, false)) {
    attention.qk_norm = family.qk_norm;
  }
  attention.fused_qkv = family.fused;
  attention.sinks = family.sinks;
  return reader.status().ok() ? absl::StatusOr<AttentionSpec>(attention) : reader.status();
}

// The rotation of layers that see all keys, and of those with a window.
struct Ropes {
  RopeSpec global;
  RopeSpec local;
};

// What `rope_parameters` of a family with two rotations says beside an object for each kind of
// layer (`per_kind`), or in place of these. Beside them transformers 5.24 writes what it was given
// flat, and reads nothing of it.
absl::Status CheckOneForAll(const json* parameters, const Family& family, bool per_kind) {
  if (parameters == nullptr) {
    return absl::OkStatus();
  }
  bool plain = parameters->is_object();
  const auto says = [&](const std::string& key, const json& value) {
    return family.scales_full_alone && ((key == "rope_type" && value == "default") ||
                                        (key == "rope_theta" && value == family.theta));
  };
  for (const auto& [key, value] : parameters->items()) {
    if (per_kind ? value.is_object() && key != "full_attention" && key != "sliding_attention"
                 : !says(key, value)) {
      plain = false;
    }
  }
  if (!plain) {
    return UnsupportedModel(
        per_kind ? "rope_parameters with more than one object for each kind of layer"
                 : absl::StrCat("rope_parameters ", QuotedValue(*parameters),
                                " without one object for each kind of layer (to transformers 5.0 "
                                "of all layers, to 5.24 of none; rope_scaling is of those without "
                                "a window)"));
  }
  return absl::OkStatus();
}

// transformers 5 looks for `truncate` beside the objects of each kind of layer, not within them.
absl::Status CheckTruncates(const json& config) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.find(name);
    if (found == config.end() || !found->is_object()) {
      continue;
    }
    const auto check = [](const std::string& where, const json& object) -> absl::Status {
      const auto truncate = object.find("truncate");
      if (truncate != object.end() && *truncate != true && !truncate->is_null()) {
        return UnsupportedModel(
            absl::StrCat(where, ".truncate ", QuotedValue(*truncate), " of some layers alone"));
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(check(name, *found));
    for (const auto& [kind, object] : found->items()) {
      if (object.is_object()) {
        RETURN_IF_ERROR(check(absl::StrCat(name, ".", Quoted(kind)), object));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Ropes> ParseRopes(const json& config, const Family& family, uint32_t head_dim,
                                 uint64_t context) {
  RopeReading reading{
      .head_dim = head_dim,
      .context = context,
      .default_theta = family.theta,
      .default_rope = family.default_rope,
      .partial = family.partial_rotary,
      .long_rope = family.long_rope,
      .yarn = family.yarn,
      .dynamic = !family.long_rope && family.local_theta == 0 && !family.scales_full_alone};
  Ropes ropes;
  if (family.local_theta == 0 && !family.scales_full_alone) {
    ASSIGN_OR_RETURN(ropes.global, ParseRopeConfig(config, reading));
    ropes.local = ropes.global;
    return ropes;
  }
  RETURN_IF_ERROR(CheckTruncates(config));
  RopeReading local = reading;
  FieldReader reader(&config, "");
  if (family.local_theta != 0) {
    local.default_theta = reader.Number("rope_local_base_freq", 1.0,
                                        kMaxMultiplier * kMaxMultiplier, family.local_theta);
  }
  RETURN_IF_ERROR(reader.status());
  // transformers 5 has an object for each kind of layer.
  const json* parameters = reader.Find("rope_parameters");
  const auto of_kind = [&](const char* kind) {
    return parameters != nullptr && parameters->is_object() && parameters->contains(kind) &&
                   (*parameters)[kind].is_object()
               ? &(*parameters)[kind]
               : nullptr;
  };
  const json* full = of_kind("full_attention");
  const json* sliding = of_kind("sliding_attention");
  if ((full != nullptr) != (sliding != nullptr)) {
    reader.Fail("rope_parameters", "has not one object for each kind of layer");
    return reader.status();
  }
  RETURN_IF_ERROR(CheckOneForAll(parameters, family, full != nullptr));
  if (full == nullptr) {
    const json* scaling = reader.Find("rope_scaling");
    if (scaling != nullptr && scaling->is_object() && scaling->contains("type") &&
        !scaling->contains("rope_type")) {
      return UnsupportedModel(
          "rope_scaling.type without rope_type (transformers 5 scales nothing)");
    }
    ASSIGN_OR_RETURN(ropes.global, ParseRopeConfig(config, reading));
    if (family.scales_full_alone && ropes.global.theta != family.theta) {
      return UnsupportedModel(absl::StrCat(
          "rope_theta ", ropes.global.theta, " without rope_parameters of each kind of layer (of ",
          "all layers to transformers 4, of those without a window alone to 5)"));
    }
    ASSIGN_OR_RETURN(ropes.local, ParseRopeConfig(json::object(), local));
    return ropes;
  }
  // With what older files have beside them, which has to agree.
  json of_global = {{"rope_parameters", *full}};
  for (const char* name : {"rope_theta", "rope_scaling"}) {
    if (reader.Has(name)) {
      of_global[name] = config[name];
    }
  }
  json of_local = {{"rope_parameters", *sliding}};
  if (reader.Has("rope_local_base_freq")) {
    of_local["rope_theta"] = config["rope_local_base_freq"];
  }
  ASSIGN_OR_RETURN(ropes.global, ParseRopeConfig(of_global, reading));
  ASSIGN_OR_RETURN(ropes.local, ParseRopeConfig(of_local, local));
  return ropes;
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

// The layers: alike but for windows and rotation.
absl::Status FillLayers(const json& config, const Family& family, uint64_t count, LayerSpec layer,
                        ModelSpec* spec) {
  ASSIGN_OR_RETURN(layer.attention, ParseAttention(config, family, spec->hidden));
  const uint32_t rotating =
      family.latent ? layer.attention.latent.rope_dim : layer.attention.head_dim;
  ASSIGN_OR_RETURN(const Ropes ropes, ParseRopes(config, family, rotating, spec->context));
  spec->context = static_cast<uint32_t>(ContextOf(ropes.global, spec->context));
  if (family.latent) {
    layer.attention.scale = static_cast<float>(
        1.0 / std::sqrt(static_cast<double>(layer.attention.head_dim)) * YarnScoreFactor(config));
  }
  ASSIGN_OR_RETURN(const std::vector<uint32_t> windows,
                   ReadWindows(config, family, count, spec->context));
  ASSIGN_OR_RETURN(const std::vector<bool> rotates, ReadRotatingLayers(config, family, count));
  ASSIGN_OR_RETURN(const std::vector<MlpSpec> mlps,
                   ReadMlps(config, family.experts, count, layer.mlp));
  for (uint64_t i = 0; i < count; ++i) {
    const KvKind all = family.latent ? KvKind::kMla : KvKind::kFull;
    const KvGroupSpec group{windows[i] == 0 ? all : KvKind::kWindow, windows[i]};
    const auto found = std::find(spec->kv_groups.begin(), spec->kv_groups.end(), group);
    layer.attention.kv_group = static_cast<uint32_t>(found - spec->kv_groups.begin());
    if (found == spec->kv_groups.end()) {
      spec->kv_groups.push_back(group);
    }
    layer.mlp = mlps[i];
    layer.attention.rotates = rotates[i];
    layer.attention.rope = ropes.global;
    spec->layers.push_back(layer);
  }
  if (family.local_theta != 0 || family.scales_full_alone) {
    // By the kind of the layer, also where the window reaches over the whole context.
    ASSIGN_OR_RETURN(const std::vector<uint32_t> slides,
                     ReadWindows(config, family, count, kMaxContextTokens + uint64_t{1}));
    for (uint64_t i = 0; i < count; ++i) {
      spec->layers[i].attention.rope = slides[i] != 0 ? ropes.local : ropes.global;
    }
  }
  return absl::OkStatus();
}

// What a decoder's own object says.
absl::StatusOr<ModelSpec> ParseDecoder(const json& config, const Family& family) {
  RETURN_IF_ERROR(CheckNothingElse(config, family));
  FieldReader reader(&config, "");
  ModelSpec spec;
  spec.family = family.name;
  spec.hidden = static_cast<uint32_t>(reader.Uint("hidden_size", 1, kMaxHiddenSize));
  spec.vocab =
      static_cast<uint32_t>(reader.Uint("vocab_size", 1, kMaxVocabSize, Default(family.vocab)));
  spec.context = static_cast<uint32_t>(
      reader.Uint("max_position_embeddings", 1, kMaxContextTokens, family.context));
  spec.tied_head = reader.Bool("tie_word_embeddings", family.tied);
  const uint64_t layers = reader.Uint("num_hidden_layers", 1, kMaxLayers);
  LayerSpec layer;
  // GGUF's norms have what Gemma's add to their weights.
  layer.norm = reader.Bool("norm_weights_include_one", false) ? NormKind::kRms : family.norm;
  layer.norm_places = family.norm_places;
  layer.mlp.ffn = static_cast<uint32_t>(reader.Uint("intermediate_size", 1, kMaxProjection));
  layer.mlp.bias = reader.Bool("mlp_bias", false);
  layer.mlp.fused_gate_up = family.fused || family.fused_mlp;
  layer.mlp.activation = reader.String(family.activation_field, family.activation) == "silu"
                             ? ActivationKind::kSilu
                             : ActivationKind::kGeluTanh;
  layer.norm_eps = static_cast<float>(reader.Number("rms_norm_eps", 0, 1, family.norm_eps));
  if (family.scales_embedding) {
    spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden)));
  }
  if (family.score_divisor != 0) {
    spec.final_soft_cap = ReadCap(config, "final_logit_softcapping", family.logit_cap, &reader);
  }
  const auto multiplier = [&](const char* name) {
    return static_cast<float>(reader.Number(name, 1e-6, kMaxMultiplier, 1.0));
  };
  if (std::string_view(family.name) == "granite") {
    spec.embedding_scale = multiplier("embedding_multiplier");
    spec.input_embedding_scale = spec.embedding_scale;
    spec.logits_divisor = multiplier("logits_scaling");
    layer.branch_scale = multiplier("residual_multiplier");
  }
  RETURN_IF_ERROR(reader.status());
  spec.final_norm = layer.norm;
  spec.final_norm_eps = layer.norm_eps;
  RETURN_IF_ERROR(FillLayers(config, family, layers, layer, &spec));
  ASSIGN_OR_RETURN(spec.quantization, ParseQuantization(config));
  return spec;
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelConfig(std::string_view config_json,
                                           std::string_view generation_config_json) {
  ASSIGN_OR_RETURN(json config,
                   ParseJsonObject(config_json, "config.json", "INVALID_CONFIG", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const Family* family, FindFamily(config));
  std::string prefix = family->tensor_prefix;
  if (family->nested_prefix != nullptr) {
    prefix = family->nested_prefix;
    ASSIGN_OR_RETURN(config, DecoderConfig(config, *family));
    ASSIGN_OR_RETURN(family, FindFamily(config));
    if (family->nested_prefix != nullptr) {
      return Error(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
                   "text_config.model_type " + Quoted(family->model_type) + " is no decoder");
    }
  }
  ReadAsMlx(&config);
  ASSIGN_OR_RETURN(const json plain, PlainFields(config, *family));
  ASSIGN_OR_RETURN(ModelSpec spec, ParseDecoder(plain, *family));
  RETURN_IF_ERROR(ReadQueryGrowth(config, *family, &spec));
  spec.tensor_prefix = prefix;
  RETURN_IF_ERROR(ReadSpecialIds(config, generation_config_json, &spec));
  return spec;
}

}  // namespace strata
