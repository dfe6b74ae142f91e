// What config.json says of weights that are stored quantized.
#ifndef STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_

#include <optional>

#include "absl/status/statusor.h"
#include "common/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// Reads MLX's `quantization` (which it repeats as `quantization_config`), or another's
// `quantization_config`; no value where there is none. UNIMPLEMENTED names the field that asks for
// what is not supported: methods, versions, numbers of bits, group sizes.
absl::StatusOr<std::optional<QuantizationSpec>> ParseQuantization(const nlohmann::json& config);

// Of a configuration with MLX's `quantization`: its fields as mlx-lm reads them, which has YaRN cut
// its range to whole pairs whatever `truncate` says (mlx_lm/models/rope_utils.py). Others stay as
// they are.
void ReadAsMlx(nlohmann::json* config);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_
