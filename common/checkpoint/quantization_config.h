// What config.json says of weights that are stored quantized.
#ifndef STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_

#include <optional>

#include "absl/status/statusor.h"
#include "common/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// Reads MLX's `quantization` (which it repeats as `quantization_config`); no value where there is
// none. UNIMPLEMENTED names other methods, modes, bits and group sizes than affine, 4 or 8, and 32,
// 64 or 128.
absl::StatusOr<std::optional<QuantizationSpec>> ParseQuantization(const nlohmann::json& config);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_
