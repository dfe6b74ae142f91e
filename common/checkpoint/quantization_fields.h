// What the parsers of quantization_config share.
#ifndef STRATA_COMMON_CHECKPOINT_QUANTIZATION_FIELDS_H_
#define STRATA_COMMON_CHECKPOINT_QUANTIZATION_FIELDS_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/json_reader.h"
#include "common/model/quantization_spec.h"
#include "nlohmann/json.hpp"

namespace strata {

inline constexpr char kQuantizationConfig[] = "quantization_config.";
inline constexpr uint64_t kMaxQuantizationGroup = 1u << 20;

// UNIMPLEMENTED, with a hint at what is supported. `what` names the field and its value.
absl::Status UnsupportedQuantization(const std::string& what);

// Null, false, or empty.
bool IsNoQuantization(const nlohmann::json* value);

// The reader, of quantization_config, fails unless the field is absent or says one of these, the
// first of which is the default.
void ExpectQuantization(FieldReader* reader, const char* name,
                        std::initializer_list<const char*> known);

// Likewise, unless the field is absent or a list of names, which changes nothing: which matrices
// are quantized, their tensors say.
void ExpectListOfNames(FieldReader* reader, const char* name);

// Sizes of a block of outputs and inputs.
absl::Status ReadQuantizationBlock(const nlohmann::json& value, const std::string& name,
                                   StoredScheme* scheme);

// MLX's `quantization`; compressed-tensors' `quantization_config`.
absl::StatusOr<QuantizationSpec> ParseMlxQuantization(const nlohmann::json& mlx);
absl::StatusOr<QuantizationSpec> ParseCompressedTensors(const nlohmann::json& value);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_QUANTIZATION_FIELDS_H_
