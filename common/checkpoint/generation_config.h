// Sampling defaults of a checkpoint: generation_config.json.
#ifndef STRATA_COMMON_CHECKPOINT_GENERATION_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_GENERATION_CONFIG_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "strata/v1/types.pb.h"

namespace strata {

// What generation_config.json ("" if there is none) says of temperature, top_k, top_p, min_p,
// typical_p and repetition_penalty; `do_sample` false makes the temperature 0. Fields that it does
// not have stay unset. INVALID_ARGUMENT names a field out of its range. Settings that change
// answers elsewhere and have no effect here (beams and the like) are named in `notes`, which may
// be null.
absl::StatusOr<v1::SamplingParams> ParseGenerationDefaults(std::string_view generation_config_json,
                                                           std::vector<std::string>* notes);
inline absl::StatusOr<v1::SamplingParams> ParseGenerationDefaults(
    std::string_view generation_config_json) {
  return ParseGenerationDefaults(generation_config_json, nullptr);
}

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GENERATION_CONFIG_H_
