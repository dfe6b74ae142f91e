// The rotary part of a config.json. Internal to the parser.
#ifndef STRATA_COMMON_CHECKPOINT_ROPE_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_ROPE_CONFIG_H_

#include "absl/status/statusor.h"
#include "common/checkpoint/json_reader.h"
#include "common/model_spec.h"

namespace strata {

// From `rope_theta` and `rope_scaling`, or from `rope_parameters`, or from both where they agree.
// Every dimension of a head rotates.
absl::StatusOr<RopeSpec> ParseRopeConfig(const nlohmann::json& config, uint32_t head_dim);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_ROPE_CONFIG_H_
