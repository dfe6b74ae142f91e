#include "common/checkpoint/generation_config.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

// Settings that we do not have, and the number that means that they are off.
struct Ignored {
  const char* name;
  double neutral;
};
constexpr Ignored kIgnored[] = {
    {"num_beams", 1},
    {"num_beam_groups", 1},
    {"penalty_alpha", 0},
    {"diversity_penalty", 0},
    {"length_penalty", 1},
    {"no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"top_h", 0},
    {"guidance_scale", 1},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"bad_words_ids", 0},
    {"sequence_bias", 0},
    {"suppress_tokens", 0},
    {"begin_suppress_tokens", 0},
    {"forced_bos_token_id", 0},
    {"forced_eos_token_id", 0},
    {"exponential_decay_length_penalty", 0},
    {"stop_strings", 0},
    {"watermarking_config", 0},
};

bool IsOff(const json& value, double neutral) {
  if (value.is_boolean()) {
    return !value.get<bool>();
  }
  if (value.is_number()) {
    return value.get<double>() == neutral;
  }
  return value.empty();
}

}  // namespace

absl::StatusOr<v1::SamplingParams> ParseGenerationDefaults(std::string_view generation_config_json,
                                                           std::vector<std::string>* notes) {
  v1::SamplingParams params;
  if (generation_config_json.empty()) {
    return params;
  }
  ASSIGN_OR_RETURN(const json config,
                   ParseJsonObject(generation_config_json, "generation_config.json",
                                   "INVALID_CONFIG", kMaxConfigBytes));
  FieldReader reader(&config, "generation_config.json: ");
  const auto number = [&](const char* name, double min, double max) {
    return static_cast<float>(reader.Number(name, min, max));
  };
  constexpr double kMost = 1e6;
  if (reader.Has("temperature")) {
    params.set_temperature(number("temperature", 0, kMost));
  }
  if (reader.Has("top_k")) {
    params.set_top_k(
        static_cast<uint32_t>(reader.Uint("top_k", 0, std::numeric_limits<uint32_t>::max())));
  }
  if (reader.Has("top_p")) {
    params.set_top_p(number("top_p", 0, 1));
  }
  if (reader.Has("min_p")) {
    params.set_min_p(number("min_p", 0, 1));
  }
  if (reader.Has("typical_p")) {
    params.set_typical_p(number("typical_p", std::numeric_limits<float>::min(), 1));
  }
  if (reader.Has("repetition_penalty")) {
    params.set_repetition_penalty(
        number("repetition_penalty", std::numeric_limits<float>::min(), kMost));
  }
  if (!reader.Bool("do_sample", true)) {
    params.set_temperature(0);
  }
  RETURN_IF_ERROR(reader.status());
  for (const Ignored& ignored : kIgnored) {
    const json* value = reader.Find(ignored.name);
    if (notes != nullptr && value != nullptr && !IsOff(*value, ignored.neutral)) {
      notes->push_back(absl::StrCat("generation_config.json's ", ignored.name, " ",
                                    QuotedValue(*value), " has no effect here"));
    }
  }
  return params;
}

}  // namespace strata
