#include "common/checkpoint/family_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr const char* kRopeObjects[] = {"rope_parameters", "rope_scaling"};
constexpr const char* kSectionsField = "mrope_section";
constexpr const char* kGrowth = "llama_4_scaling_beta";
constexpr const char* kPartialField = "partial_rotary_factor";

Error Contradicts(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG", what);
}

// A field of a published config.json that transformers' own model computes in one way, whatever it
// says. `only` is JSON.
struct OneWay {
  const char* model_type;
  const char* field;
  const char* only;
};
constexpr OneWay kOneWays[] = {
    {"minimax_m2", "use_qk_norm", "true"},
    {"minimax_m2", "qk_norm_type", "\"per_layer\""},
    {"minimax_m2", "use_routing_bias", "true"},
    {"minimax_m2", "scoring_func", "\"sigmoid\""},
    {"minimax_m2", "shared_intermediate_size", "0"},
};

absl::Status CheckOneWays(const json& config, const Family& family) {
  const std::string_view type = family.model_type;
  for (const OneWay& one : kOneWays) {
    const auto found = config.find(one.field);
    if (type == one.model_type && found != config.end() && !found->is_null() &&
        *found != json::parse(one.only)) {
      return UnsupportedModel(absl::StrCat(one.field, " ", QuotedValue(*found)));
    }
  }
  // Layers of MiniMax's that attend linearly are another family's.
  if (const auto kinds = config.find("attn_type_list");
      type == "minimax_m2" && kinds != config.end() && kinds->is_array()) {
    for (const json& kind : *kinds) {
      if (kind != 1) {
        return UnsupportedModel("attn_type_list with " + QuotedValue(kind));
      }
    }
  }
  return absl::OkStatus();
}

// Takes the sections out of a rotary object. All three positions of a token of text are its place
// in the sequence, so that it does not matter whose a pair of dimensions is.
absl::Status TakeSections(const std::string& field, const Family& family, uint64_t pairs,
                          json* object) {
  const auto sections = object->find(kSectionsField);
  if (sections != object->end()) {
    uint64_t sum = 0;
    bool right = sections->is_array();
    for (const json& section : *sections) {
      right = right && section.is_number_unsigned() && section.get<uint64_t>() <= kMaxHiddenSize;
      sum += right ? section.get<uint64_t>() : 0;
    }
    if (!right || (family.mrope == Mrope::kSections && sum != pairs)) {
      return Contradicts(
          absl::StrCat(field, ".", kSectionsField, " ", QuotedValue(*sections), " does not divide ",
                       pairs, " pairs, half of head_dim (or hidden_size / num_attention_heads)"));
    }
    object->erase(sections);
  }
  object->erase("mrope_interleaved");
  for (const char* name : {"type", "rope_type"}) {
    if (family.mrope == Mrope::kSections && object->value(name, json()) == "mrope") {
      (*object)[name] = "default";
    }
  }
  return absl::OkStatus();
}

// Puts the share of a head's dimensions that rotate where it is read, if nothing says it there.
absl::Status PlacePartial(const Family& family, json* config) {
  std::optional<double> share;
  const auto take = [&](const json& object) {
    const auto found = object.find(kPartialField);
    if (found != object.end() && found->is_number()) {
      share = found->get<double>();
    }
  };
  take(*config);
  for (const char* name : kRopeObjects) {
    if (const auto object = config->find(name); object != config->end() && object->is_object()) {
      take(*object);
    }
  }
  FieldReader reader(config, "");
  if (Reads(family, "rotary_dim") && reader.Has("rotary_dim")) {
    const uint64_t head_dim = reader.Uint("head_dim", 1, kMaxHiddenSize, family.head_dim);
    const uint64_t dims = reader.Uint("rotary_dim", 1, head_dim);
    RETURN_IF_ERROR(reader.status());
    if (share.has_value() && std::floor(static_cast<double>(head_dim) * *share) != dims) {
      return Contradicts(absl::StrCat("rotary_dim is ", dims, ", and ", kPartialField, " ", *share,
                                      " of head_dim ", head_dim));
    }
    if (!share.has_value()) {
      (*config)[kPartialField] = static_cast<double>(dims) / static_cast<double>(head_dim);
    }
    return absl::OkStatus();
  }
  // null is all of a head to transformers 5, and no number to 4.
  if (!share.has_value() && config->contains(kPartialField) && family.partial_share != 1) {
    return UnsupportedModel(
        absl::StrCat(kPartialField, " ", QuotedValue((*config)[kPartialField])));
  }
  if (!share.has_value() && family.partial_share != 1) {
    (*config)[kPartialField] = family.partial_share;
  }
  return absl::OkStatus();
}

// "dense", then "sparse": how many of the former.
absl::Status PlaceDenseLayers(json* config) {
  const auto kinds = config->find("mlp_layer_types");
  if (kinds == config->end() || kinds->is_null()) {
    if (!config->contains("first_k_dense_replace")) {
      (*config)["first_k_dense_replace"] = 1u;
    }
    return absl::OkStatus();
  }
  uint64_t dense = 0;
  bool right = kinds->is_array() && kinds->size() == config->value("num_hidden_layers", json());
  for (size_t i = 0; right && i < kinds->size(); ++i) {
    const bool is_dense = (*kinds)[i] == "dense";
    right = (is_dense && dense == i) || (*kinds)[i] == "sparse";
    dense += is_dense ? 1 : 0;
  }
  if (!right) {
    return UnsupportedModel("mlp_layer_types " + QuotedValue(*kinds) +
                            ", which is not dense layers and then sparse ones,");
  }
  const auto said = config->find("first_k_dense_replace");
  if (said != config->end() && !said->is_null() && *said != dense) {
    return Contradicts(absl::StrCat("first_k_dense_replace is ", QuotedValue(*said),
                                    ", and mlp_layer_types has ", dense, " dense layers"));
  }
  (*config)["first_k_dense_replace"] = dense;
  return absl::OkStatus();
}

// Whether the head is the embedding, as transformers 5 reads it: by the model's own object, or by
// the decoder's where that says nothing. Qwen2's take either.
void PlaceTied(const json& config, const Family& outer, json* decoder) {
  constexpr const char* kTied = "tie_word_embeddings";
  const auto of_model = config.find(kTied);
  if (of_model == config.end() || of_model->is_null()) {
    return;
  }
  if (!outer.tied_by_either || !decoder->contains(kTied) || *of_model == true) {
    (*decoder)[kTied] = *of_model;
  }
}

}  // namespace

absl::StatusOr<json> DecoderConfig(const json& config, const Family& outer) {
  FieldReader reader(&config, "");
  const json* text = reader.Find("text_config");
  if (text == nullptr && outer.flat_text && reader.Has("hidden_size")) {
    json decoder = config;
    for (const char* name : {"architectures", "vision_config", "auto_map"}) {
      decoder.erase(name);
    }
    decoder["model_type"] = outer.text_type;
    return decoder;
  }
  if (text == nullptr || !text->is_object()) {
    reader.Fail("text_config", text != nullptr   ? "is not an object"
                               : outer.flat_text ? "is missing, and so is hidden_size beside it"
                                                 : "is missing");
    return reader.status();
  }
  json decoder = *text;
  for (const char* name : {"bos_token_id", "eos_token_id", "quantization", "quantization_config"}) {
    if (!decoder.contains(name) && config.contains(name)) {
      decoder[name] = config[name];
    }
  }
  PlaceTied(config, outer, &decoder);
  decoder.erase("architectures");
  if (outer.text_type != nullptr && !decoder.contains("model_type")) {
    decoder["model_type"] = outer.text_type;
  }
  return decoder;
}

absl::StatusOr<json> PlainFields(const json& config, const Family& family) {
  RETURN_IF_ERROR(CheckOneWays(config, family));
  json plain = config;
  for (const char* name : kRopeObjects) {
    const auto object = plain.find(name);
    if (object == plain.end() || !object->is_object()) {
      continue;
    }
    if (family.query_growth) {
      object->erase(kGrowth);
      object->erase("max_position_embeddings");  // That of the decoder again.
    }
    if (family.mrope != Mrope::kNone) {
      FieldReader reader(&config, "");
      const uint64_t heads = reader.Uint("num_attention_heads", 1, kMaxHiddenSize);
      const uint64_t hidden = reader.Uint("hidden_size", 1, kMaxHiddenSize);
      RETURN_IF_ERROR(reader.status());
      const uint64_t head_dim = reader.Uint(
          "head_dim", 1, kMaxHiddenSize,
          family.head_dim != 0 ? family.head_dim : std::max<uint64_t>(1, hidden / heads));
      RETURN_IF_ERROR(reader.status());
      RETURN_IF_ERROR(TakeSections(name, family, head_dim / 2, &*object));
    }
  }
  if (family.partial_rotary) {
    RETURN_IF_ERROR(PlacePartial(family, &plain));
  }
  if (Reads(family, "mlp_layer_types")) {
    RETURN_IF_ERROR(PlaceDenseLayers(&plain));
  }
  return plain;
}

absl::Status ReadQueryGrowth(const json& config, const Family& family, ModelSpec* spec) {
  if (!family.query_growth) {
    return absl::OkStatus();
  }
  for (const char* name : kRopeObjects) {
    FieldReader outer(&config, "");
    const json* object = outer.Find(name);
    if (object == nullptr || !object->is_object()) {
      continue;
    }
    FieldReader reader(object, absl::StrCat(name, "."));
    if (!reader.Has(kGrowth)) {
      continue;
    }
    const double growth = reader.Number(kGrowth, 0, 1e3);
    const uint64_t every =
        growth == 0 ? 0 : reader.Uint("original_max_position_embeddings", 1, kMaxContextTokens);
    RETURN_IF_ERROR(reader.status());
    for (LayerSpec& layer : spec->layers) {
      layer.attention.query_growth = static_cast<float>(growth);
      layer.attention.query_growth_every = static_cast<uint32_t>(every);
    }
    return absl::OkStatus();
  }
  return Contradicts(absl::StrCat("rope_parameters.", kGrowth, " is missing"));
}

}  // namespace strata
