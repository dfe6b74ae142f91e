#include "common/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "common/limits.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

Error Refuse(std::string_view field, std::string_view value, std::string_view range) {
  const std::string name(field);
  return Error(absl::StatusCode::kInvalidArgument, "SAMPLING_PARAMETER",
               name + " is " + std::string(value) + "; it must be " + std::string(range))
      .Fact("field", field);
}

// FormatFloat writes what is not finite as JSON does.
std::string Show(float value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  return FormatFloat(value);
}

struct Range {
  float low;
  bool low_included;
  float high;
  std::string_view words;
};

absl::Status CheckRange(std::string_view field, float value, const Range& range) {
  const bool above = range.low_included ? value >= range.low : value > range.low;
  if (!std::isfinite(value) || !above || value > range.high) {
    return Refuse(field, Show(value), range.words);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSampling(const v1::SamplingParams& params, uint32_t vocab) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const Range penalty = {-2, true, 2, "in [-2, 2]"};
  const Range unit = {0, true, 1, "in [0, 1]"};
  const Range positive = {0, false, kMax, "greater than 0 and finite"};
  if (params.has_temperature()) {
    RETURN_IF_ERROR(CheckRange("temperature", params.temperature(),
                               {0, true, kMax, "0 (greedy) or greater, and finite"}));
  }
  // Larger than any vocabulary: a negative number that lost its sign, not a wish.
  if (params.top_k() > kMaxVocabSize) {
    return Refuse("top_k", std::to_string(params.top_k()),
                  "at most " + std::to_string(kMaxVocabSize) + " (0 is off)");
  }
  if (params.has_top_p()) {
    RETURN_IF_ERROR(CheckRange("top_p", params.top_p(), unit));
  }
  if (params.has_min_p()) {
    RETURN_IF_ERROR(CheckRange("min_p", params.min_p(), unit));
  }
  if (params.has_typical_p()) {
    RETURN_IF_ERROR(CheckRange("typical_p", params.typical_p(), {0, false, 1, "in (0, 1]"}));
  }
  if (params.has_repetition_penalty()) {
    RETURN_IF_ERROR(CheckRange("repetition_penalty", params.repetition_penalty(), positive));
  }
  if (params.has_frequency_penalty()) {
    RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty(), penalty));
  }
  if (params.has_presence_penalty()) {
    RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty(), penalty));
  }
  if (static_cast<size_t>(params.logit_bias().size()) > kMaxLogitBias) {
    return Refuse("logit_bias", std::to_string(params.logit_bias().size()) + " entries",
                  "at most " + std::to_string(kMaxLogitBias) + " entries");
  }
  // The map has no order; the lowest wrong id is the one named.
  uint32_t wrong = std::numeric_limits<uint32_t>::max();
  bool found = false;
  for (const auto& [id, bias] : params.logit_bias()) {
    if (id >= vocab || !std::isfinite(bias)) {
      wrong = std::min(wrong, id);
      found = true;
    }
  }
  if (found) {
    if (wrong >= vocab) {
      return Refuse("logit_bias", "for token id " + std::to_string(wrong),
                    "for ids below the vocabulary's " + std::to_string(vocab));
    }
    return Refuse("logit_bias[" + std::to_string(wrong) + "]", Show(params.logit_bias().at(wrong)),
                  "finite");
  }
  return absl::OkStatus();
}

absl::Status CheckSamplingComplete(const v1::SamplingParams& params) {
  const std::pair<std::string_view, bool> fields[] = {
      {"temperature", params.has_temperature()},
      {"top_k", params.has_top_k()},
      {"top_p", params.has_top_p()},
      {"min_p", params.has_min_p()},
      {"typical_p", params.has_typical_p()},
      {"repetition_penalty", params.has_repetition_penalty()},
      {"frequency_penalty", params.has_frequency_penalty()},
      {"presence_penalty", params.has_presence_penalty()},
      {"seed", params.has_seed()},
  };
  for (const auto& [name, set] : fields) {
    if (!set) {
      return Error(absl::StatusCode::kInvalidArgument, "SAMPLING_INCOMPLETE",
                   "sampling parameter " + std::string(name) + " is not set")
          .Fact("field", name);
    }
  }
  return absl::OkStatus();
}

v1::SamplingParams PlainSampling(float temperature, uint64_t seed) {
  v1::SamplingParams params;
  params.set_temperature(temperature);
  params.set_top_k(0);
  params.set_top_p(1);
  params.set_min_p(0);
  params.set_typical_p(1);
  params.set_repetition_penalty(1);
  params.set_frequency_penalty(0);
  params.set_presence_penalty(0);
  params.set_seed(seed);
  return params;
}

}  // namespace strata
