// The rotary part of a config.json. Internal to the parser.
#ifndef STRATA_COMMON_CHECKPOINT_ROPE_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_ROPE_CONFIG_H_

#include "absl/status/statusor.h"
#include "common/checkpoint/json_reader.h"
#include "common/model/model_spec.h"

namespace strata {

// What a family reads, and its defaults.
struct RopeReading {
  uint32_t head_dim = 0;
  uint64_t context = 0;  // max_position_embeddings.
  double default_theta = 10000.0;
  // rope_parameters of a file that has neither object, as JSON; null: no scaling.
  const char* default_rope = nullptr;
  bool partial = false;    // partial_rotary_factor: else every dimension of a head rotates.
  bool long_rope = false;  // The type "longrope", and its older names.
  bool yarn = false;       // The type "yarn".
  bool dynamic = false;    // The type "dynamic".
};

// From `rope_theta` and `rope_scaling`, or from `rope_parameters`, or from both where they agree.
absl::StatusOr<RopeSpec> ParseRopeConfig(const nlohmann::json& config, const RopeReading& reading);

// Tokens that a model of `positions`, its max_position_embeddings, may have with this rotation.
// YaRN and dynamic NTK say by how much they extend what it was trained for: yarn its
// original_max_position_embeddings (`positions` may be that, as Qwen's model cards write it, or the
// product, as DeepSeek's and gpt-oss' files do), dynamic `positions`. That is what vLLM takes.
// Other types are in files whose `positions` is the extended number, or say nothing.
uint64_t ContextOf(const RopeSpec& rope, uint64_t positions);

// What DeepSeek multiplies scores by because of YaRN (`mscale_all_dim`), in a configuration that
// ParseRopeConfig read.
double YarnScoreFactor(const nlohmann::json& config);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_ROPE_CONFIG_H_
