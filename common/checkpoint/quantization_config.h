// What config.json says of weights that are stored quantized.
#ifndef STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// Reads MLX's `quantization` (which it repeats as `quantization_config`), or another's
// `quantization_config`; no value where there is none. UNIMPLEMENTED names the field that asks for
// what is not supported: methods, versions, numbers of bits, group sizes.
absl::StatusOr<std::optional<QuantizationSpec>> ParseQuantization(const nlohmann::json& config);

// The name of a file beside config.json in which ModelOpt says how it quantized, and config.json
// (JSON, as is what is returned) with what the file, `stored`, says as its quantization_config,
// which newer files have. INVALID_ARGUMENT where both are there and name different algorithms.
inline constexpr char kModelOptName[] = "hf_quant_config.json";
absl::StatusOr<std::string> AddModelOpt(const std::string& config_json, std::string_view stored);

// Of a configuration with MLX's `quantization`: its fields as mlx-lm reads them, which has YaRN cut
// its range to whole pairs whatever `truncate` says (mlx_lm/models/rope_utils.py). Others stay as
// they are.
void ReadAsMlx(nlohmann::json* config);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_QUANTIZATION_CONFIG_H_
