#include "common/checkpoint/quantization_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/quantized_weights.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

using nlohmann::json;

absl::Status Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_MODEL",
               what + " is not supported yet")
      .Hint(
          "use a checkpoint in F32, F16 or BF16, or one that MLX quantized (affine, 4 or 8 bits)");
}

// `where` is the object's path, for errors.
absl::StatusOr<AffineSpec> ParseAffine(const json& value, const std::string& where) {
  FieldReader reader(&value, where);
  const std::string mode = reader.String("mode", "affine");
  const uint64_t bits = reader.Uint("bits", 1, 64);
  const uint64_t group = reader.Uint("group_size", 1, 1 << 20, 64);
  RETURN_IF_ERROR(reader.status());
  if (mode != "affine") {
    return Unsupported(absl::StrCat(where, "mode ", Quoted(mode)));
  }
  if (!IsAffineBits(bits)) {
    return Unsupported(absl::StrCat(where, "bits ", bits));
  }
  if (!IsAffineGroup(group)) {
    return Unsupported(absl::StrCat(where, "group_size ", group));
  }
  return AffineSpec{static_cast<uint32_t>(bits), static_cast<uint32_t>(group)};
}

bool IsNone(const json* value) {
  return value == nullptr || value->is_null() || value->empty() ||
         (value->is_boolean() && !value->get<bool>());
}

}  // namespace

absl::StatusOr<std::optional<QuantizationSpec>> ParseQuantization(const json& config) {
  FieldReader reader(&config, "");
  const json* mlx = reader.Find("quantization");
  const json* other = reader.Find("quantization_config");
  // gpt-oss' experts, which their tensors' names say too.
  if (IsNone(mlx) && other != nullptr && other->is_object() &&
      other->value("quant_method", json()) == "mxfp4") {
    return std::optional<QuantizationSpec>();
  }
  if (!IsNone(other) && (IsNone(mlx) || *other != *mlx)) {
    return Unsupported("quantization_config " + QuotedValue(*other));
  }
  if (IsNone(mlx)) {
    return std::optional<QuantizationSpec>();
  }
  if (!mlx->is_object()) {
    return Unsupported("quantization " + QuotedValue(*mlx));
  }
  QuantizationSpec spec;
  ASSIGN_OR_RETURN(spec.by_default, ParseAffine(*mlx, "quantization."));
  for (const auto& [path, value] : mlx->items()) {
    // A path that is not quantized says false; its missing scales say so too.
    if (value.is_object()) {
      ASSIGN_OR_RETURN(spec.by_path[path],
                       ParseAffine(value, absl::StrCat("quantization.", Quoted(path), ".")));
    }
  }
  return std::optional<QuantizationSpec>(std::move(spec));
}

}  // namespace strata
