// Fields that single families have, in place of those that all are read by. Internal to the parser
// of config.json.
#ifndef STRATA_COMMON_CHECKPOINT_FAMILY_FIELDS_H_
#define STRATA_COMMON_CHECKPOINT_FAMILY_FIELDS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/family_config.h"
#include "nlohmann/json.hpp"

namespace strata {

// The decoder's object within that of a model of several parts, with what stands beside it; in
// files that have none, the fields that stand in the model's own.
absl::StatusOr<nlohmann::json> DecoderConfig(const nlohmann::json& config, const Family& outer);

// `config` as other families write it: sections of multimodal positions, which say nothing of
// text, are gone, MiniMax's rotary_dim and the family's default are a partial_rotary_factor,
// and mlp_layer_types is first_k_dense_replace. Refuses by name what the family has in one way
// only.
absl::StatusOr<nlohmann::json> PlainFields(const nlohmann::json& config, const Family& family);

// AttentionSpec::query_growth of all layers, from llama_4_scaling_beta of the rotary object.
absl::Status ReadQueryGrowth(const nlohmann::json& config, const Family& family, ModelSpec* spec);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_FAMILY_FIELDS_H_
