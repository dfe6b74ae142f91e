#include "common/checkpoint/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/numerics/math.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

Error Contradiction(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG", what);
}

// The kind under `rope_type` or `type`, of LongRoPE under its present name; "" where neither is
// there.
absl::StatusOr<std::string> TypeOf(const json& object, const std::string& field,
                                   const RopeReading& reading) {
  FieldReader reader(&object, field + ".");
  const std::string type = reader.String("type", "");
  const std::string rope_type = reader.String("rope_type", type);
  RETURN_IF_ERROR(reader.status());
  if (!type.empty() && type != rope_type) {
    return Contradiction(
        absl::StrCat(field, " has rope_type ", Quoted(rope_type), " and type ", Quoted(type)));
  }
  const bool old_name = rope_type == "su" || rope_type == "yarn";
  return reading.long_rope && old_name ? "longrope" : rope_type;
}

// The original context stands within, or at the top level, or in both places alike; where it is in
// neither it is `fallback`.
absl::StatusOr<double> ReadOriginal(const json& object, const std::string& field,
                                    const json& config, std::optional<uint64_t> fallback) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  FieldReader reader(&object, field + ".");
  FieldReader top(&config, "");
  const uint64_t least = 2;
  std::optional<uint64_t> outside;
  if (top.Has(kOriginal)) {
    outside = top.Uint(kOriginal, least, kMaxContextTokens);
  }
  const uint64_t original =
      reader.Uint(kOriginal, least, kMaxContextTokens, outside.has_value() ? outside : fallback);
  RETURN_IF_ERROR(top.status());
  RETURN_IF_ERROR(reader.status());
  if (outside.has_value() && *outside != original) {
    return Contradiction(
        absl::StrCat(kOriginal, " is ", *outside, ", and in ", field, " ", original));
  }
  return static_cast<double>(original);
}

absl::Status ReadLlama3(const json& object, const std::string& field, const json& config,
                        RopeSpec* rope) {
  FieldReader reader(&object, field + ".");
  rope->scaling = RopeScaling::kLlama3;
  rope->factor = reader.Number("factor", 1.0, kMaxFactor);
  rope->low_freq_factor = reader.Number("low_freq_factor", 1e-6, kMaxFactor);
  rope->high_freq_factor = reader.Number("high_freq_factor", 1e-6, kMaxFactor);
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(rope->original_context, ReadOriginal(object, field, config, std::nullopt));
  RETURN_IF_ERROR(reader.status());
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    return Contradiction(absl::StrCat(field, ".high_freq_factor ", rope->high_freq_factor,
                                      " is not above low_freq_factor ", rope->low_freq_factor));
  }
  return absl::OkStatus();
}

// What gguf_model.cc writes of a GGUF file's rope_freqs.
absl::Status ReadDivisors(const json& object, const std::string& field, RopeSpec* rope) {
  const auto found = object.find("divisors");
  if (found == object.end() || !found->is_array() || found->size() != rope->rotary_dim / 2) {
    return Contradiction(absl::StrCat(field, ".divisors is no list of ", rope->rotary_dim / 2,
                                      " numbers, half of head_dim"));
  }
  for (const json& divisor : *found) {
    const float value = divisor.is_number() ? divisor.get<float>() : 0.0f;
    if (!(value >= 1e-6f && value <= static_cast<float>(kMaxFactor))) {
      return Contradiction(
          absl::StrCat(field, ".divisors has ", QuotedValue(divisor), ", not from 1e-6 to 1e6"));
    }
    rope->divisors.push_back(value);
  }
  return absl::OkStatus();
}

// Rescale factors of LongRoPE.
std::vector<double> ReadFactors(const char* name, size_t count, FieldReader* reader) {
  std::vector<double> factors;
  const json* list = reader->Find(name);
  if (list == nullptr) {
    reader->Fail(name, "is missing");
    return factors;
  }
  if (!list->is_array() || list->size() != count) {
    reader->Fail(
        name,
        absl::StrCat("is not a list of ", count,
                     " numbers, one for each pair of the dimensions that rotate: of head_dim (or "
                     "hidden_size / num_attention_heads) times partial_rotary_factor"));
    return factors;
  }
  for (const json& factor : *list) {
    const double value = factor.is_number() ? factor.get<double>() : 0;
    if (!(value >= 1 / kMaxFactor && value <= kMaxFactor)) {
      reader->Fail(name, "holds " + QuotedValue(factor) + ", which is no factor");
      return factors;
    }
    factors.push_back(value);
  }
  return factors;
}

absl::Status ReadLongRope(const json& object, const std::string& field, const json& config,
                          const RopeReading& reading, RopeSpec* rope) {
  FieldReader reader(&object, field + ".");
  rope->scaling = RopeScaling::kLongRope;
  const size_t pairs = rope->rotary_dim / 2;
  rope->short_factors = ReadFactors("short_factor", pairs, &reader);
  rope->long_factors = ReadFactors("long_factor", pairs, &reader);
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(rope->original_context, ReadOriginal(object, field, config, std::nullopt));
  const double factor = reader.Number(
      "factor", 1e-3, kMaxFactor, static_cast<double>(reading.context) / rope->original_context);
  const double magnitude =
      factor <= 1 ? 1 : std::sqrt(1 + LogF64(factor) / LogF64(rope->original_context));
  rope->magnitude = reader.Number("attention_factor", 1e-3, 1e3, magnitude);
  return reader.status();
}

// YaRN's multiplier of a factor by which a context was extended.
double YarnMagnitude(double factor, double by) {
  return factor <= 1 ? 1.0 : 0.1 * by * LogF64(factor) + 1.0;
}

// Which pairs keep their frequencies, and which are divided, follows from how often they turn over
// the original context.
absl::Status ReadYarn(const json& object, const std::string& field, const json& config,
                      const RopeReading& reading, double theta, RopeSpec* rope) {
  FieldReader reader(&object, field + ".");
  rope->scaling = RopeScaling::kYarn;
  rope->factor = reader.Number("factor", 1.0, kMaxFactor);
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(const double original, ReadOriginal(object, field, config, reading.context));
  rope->original_context = original;
  const double fast = reader.Number("beta_fast", 1e-3, kMaxFactor, 32.0);
  const double slow = reader.Number("beta_slow", 1e-3, kMaxFactor, 1.0);
  const bool truncate = reader.Bool("truncate", true);
  const double mscale = reader.Number("mscale", 0, kMaxFactor, 0.0);
  const double all_dim = reader.Number("mscale_all_dim", 0, kMaxFactor, 0.0);
  const double by_default = mscale != 0 && all_dim != 0 ? YarnMagnitude(rope->factor, mscale) /
                                                              YarnMagnitude(rope->factor, all_dim)
                                                        : YarnMagnitude(rope->factor, 1);
  rope->magnitude = reader.Number("attention_factor", 1e-3, 1e3, by_default);
  // vLLM's name of it, which transformers does not look at.
  if (!reader.Bool("apply_yarn_scaling", true) && rope->magnitude != 1) {
    reader.Fail("apply_yarn_scaling",
                "is false, and attention_factor, mscale and mscale_all_dim "
                "do not say 1");
  }
  RETURN_IF_ERROR(reader.status());
  if (theta <= 1) {
    return Contradiction(absl::StrCat("rope_theta ", theta, " is not above 1, as yarn needs"));
  }
  // The pair that turns so often over the original context.
  const auto pair = [&](double turns) {
    return rope->rotary_dim * LogF64(original / (turns * 2 * std::numbers::pi)) /
           (2 * LogF64(theta));
  };
  rope->yarn_low = std::max(0.0, truncate ? std::floor(pair(fast)) : pair(fast));
  rope->yarn_high = std::min(rope->rotary_dim - 1.0, truncate ? std::ceil(pair(slow)) : pair(slow));
  if (rope->yarn_low == rope->yarn_high) {
    rope->yarn_high += 0.001;
  }
  if (rope->yarn_low > rope->yarn_high) {
    return Contradiction(
        absl::StrCat(field, ": beta_fast ", fast, " and beta_slow ", slow, " leave no range"));
  }
  return absl::OkStatus();
}

// Dynamic NTK: how fast a row turns depends on how long the sequence is by then, and what was
// turned before stays as it is. Here it depends on the request alone, see RopeSpec.
absl::Status ReadDynamic(const json& object, const std::string& field, const RopeReading& reading,
                         RopeSpec* rope) {
  FieldReader reader(&object, field + ".");
  rope->scaling = RopeScaling::kDynamic;
  rope->factor = reader.Number("factor", 1.0, kMaxFactor);
  rope->original_context = static_cast<double>(reading.context);
  if (rope->rotary_dim <= 2) {
    return UnsupportedModel(
        absl::StrCat(field, " type \"dynamic\" of ", rope->rotary_dim, " dimensions that rotate"));
  }
  return reader.status();
}

// What a type knows beside theta and partial_rotary_factor.
bool IsKeyOf(const std::string& type, const std::string& key) {
  if (type == "linear" || type == "dynamic") {
    return key == "factor";
  }
  if (type == "llama3") {
    return key == "factor" || key == "low_freq_factor" || key == "high_freq_factor" ||
           key == "original_max_position_embeddings";
  }
  if (type == "divisors") {
    return key == type;
  }
  if (type == "yarn") {
    return key == "factor" || key == "beta_fast" || key == "beta_slow" || key == "mscale" ||
           key == "mscale_all_dim" || key == "attention_factor" || key == "truncate" ||
           key == "original_max_position_embeddings" || key == "apply_yarn_scaling" ||
           key == "finetuned";  // Of "dynamic yarn" alone, in the code that wrote it.
  }
  return type == "longrope" &&
         (key == "factor" || key == "short_factor" || key == "long_factor" ||
          key == "attention_factor" || key == "original_max_position_embeddings");
}

// Refuses what the type does not know: it would change the rotation in a way that we do not.
absl::Status CheckKeys(const json& object, const std::string& field, const std::string& type,
                       const RopeReading& reading) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || key == "type" || key == "rope_type" || key == "rope_theta" ||
        IsKeyOf(type, key)) {
      continue;
    }
    if (key == "partial_rotary_factor") {
      if (!reading.partial && (!value.is_number() || value.get<double>() != 1.0)) {
        return UnsupportedModel(absl::StrCat(field, ".", key, " ", QuotedValue(value)));
      }
      continue;
    }
    return UnsupportedModel(absl::StrCat(field, ".", Quoted(key), " ", QuotedValue(value),
                                         " with type ", Quoted(type)));
  }
  return absl::OkStatus();
}

// The dimensions of a head that rotate, from the top level or an object.
absl::Status ReadPartial(const json& object, const std::string& prefix, const RopeReading& reading,
                         RopeSpec* rope) {
  constexpr const char* kPartial = "partial_rotary_factor";
  FieldReader reader(&object, prefix);
  if (!reading.partial || !reader.Has(kPartial)) {
    return absl::OkStatus();
  }
  const double share = reader.Number(kPartial, 0, 1);
  const auto dims = static_cast<uint32_t>(reading.head_dim * share);
  if (dims < 2 || dims % 2 != 0) {
    reader.Fail(kPartial, absl::StrCat(share, " of head_dim ", reading.head_dim,
                                       " is no even number of dimensions"));
  }
  rope->rotary_dim = dims;
  return reader.status();
}

// One of the two objects. `theta` stays as it is where the object has none.
absl::Status ReadObject(const json& object, const std::string& field, const json& config,
                        const RopeReading& reading, RopeSpec* rope, std::optional<double>* theta) {
  if (!object.is_object()) {
    return Contradiction(absl::StrCat(field, " ", QuotedValue(object), " is not an object"));
  }
  if (object.empty()) {
    return absl::OkStatus();
  }
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      return UnsupportedModel(absl::StrCat(field, " per kind of layer (", Quoted(key), ")"));
    }
  }
  ASSIGN_OR_RETURN(std::string type, TypeOf(object, field, reading));
  if (type.empty()) {
    // transformers 5 may write nothing but rope_theta.
    if (field != "rope_parameters") {
      return Contradiction(field + " has neither rope_type nor type");
    }
    type = "default";
  }
  if (type != "default" && type != "linear" && type != "llama3" && type != "divisors" &&
      (type != "longrope" || !reading.long_rope) && (type != "yarn" || !reading.yarn) &&
      (type != "dynamic" || !reading.dynamic)) {
    return UnsupportedModel(absl::StrCat(field, " type ", Quoted(type)));
  }
  RETURN_IF_ERROR(CheckKeys(object, field, type, reading));
  RETURN_IF_ERROR(ReadPartial(object, field + ".", reading, rope));
  FieldReader reader(&object, field + ".");
  if (reader.Has("rope_theta")) {
    *theta = reader.Number("rope_theta", 1.0, kMaxTheta);
    RETURN_IF_ERROR(reader.status());
  }
  if (type == "yarn") {
    return ReadYarn(object, field, config, reading, theta->value_or(reading.default_theta), rope);
  }
  if (type == "divisors") {
    return ReadDivisors(object, field, rope);
  }
  if (type == "dynamic") {
    return ReadDynamic(object, field, reading, rope);
  }
  if (type == "linear") {
    rope->scaling = RopeScaling::kLinear;
    rope->factor = reader.Number("factor", 1.0, kMaxFactor);
    return reader.status();
  }
  return type == "llama3"     ? ReadLlama3(object, field, config, rope)
         : type == "longrope" ? ReadLongRope(object, field, config, reading, rope)
                              : absl::OkStatus();
}

}  // namespace

absl::StatusOr<RopeSpec> ParseRopeConfig(const json& config, const RopeReading& reading) {
  FieldReader top(&config, "");
  RopeSpec rope;
  rope.rotary_dim = reading.head_dim;
  RETURN_IF_ERROR(ReadPartial(config, "", reading, &rope));
  const uint32_t rotary_dim = rope.rotary_dim;
  std::optional<double> theta;
  if (top.Has("rope_theta")) {
    theta = top.Number("rope_theta", 1.0, kMaxTheta);
    RETURN_IF_ERROR(top.status());
  }
  const json* scaling = top.Find("rope_scaling");
  const json* parameters = top.Find("rope_parameters");
  json by_default;
  if (scaling == nullptr && parameters == nullptr && reading.default_rope != nullptr) {
    if (config.contains("rope_scaling")) {
      return UnsupportedModel(
          "rope_scaling null (the family's default to transformers 5, no scaling to 4)");
    }
    by_default = json::parse(reading.default_rope);
    parameters = &by_default;
  }
  const std::optional<double> theta_outside = theta;
  if (scaling != nullptr) {
    RETURN_IF_ERROR(ReadObject(*scaling, "rope_scaling", config, reading, &rope, &theta));
  }
  if (parameters != nullptr) {
    RopeSpec other;
    other.rotary_dim = rotary_dim;
    RETURN_IF_ERROR(ReadObject(*parameters, "rope_parameters", config, reading, &other, &theta));
    if (scaling != nullptr && !(other == rope)) {
      return Contradiction("rope_scaling and rope_parameters disagree");
    }
    rope = other;
  }
  if (theta_outside.has_value() && theta != theta_outside) {
    return Contradiction(absl::StrCat("rope_theta is ", *theta_outside, " and within ",
                                      parameters != nullptr ? "rope_parameters " : "rope_scaling ",
                                      *theta));
  }
  rope.theta = theta.value_or(reading.default_theta);
  return rope;
}

uint64_t ContextOf(const RopeSpec& rope, uint64_t positions) {
  const bool extends = rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kDynamic;
  const double extended = extends ? std::floor(rope.factor * rope.original_context) : 0;
  return std::max(positions, static_cast<uint64_t>(std::min<double>(extended, kMaxContextTokens)));
}

double YarnScoreFactor(const json& config) {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const auto object = config.find(name);
    if (object == config.end() || !object->is_object() || !object->contains("factor")) {
      continue;
    }
    const auto all_dim = object->find("mscale_all_dim");
    if (all_dim != object->end() && all_dim->is_number() && all_dim->get<double>() != 0) {
      const double magnitude =
          YarnMagnitude((*object)["factor"].get<double>(), all_dim->get<double>());
      return magnitude * magnitude;
    }
  }
  return 1;
}

}  // namespace strata
