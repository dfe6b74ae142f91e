// MLX's `quantization`. The modes and their defaults: mlx/nn/layers/quantized.py of
// github.com/ml-explore/mlx; the layout of the object: mlx_lm/utils.py of mlx-lm.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/quantization_config.h"
#include "common/checkpoint/quantization_fields.h"
#include "common/model/quantized_weights.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

struct Mode {
  const char* name;
  QuantizationMethod method;
  uint64_t group;  // By default; of all but affine the only one.
  uint64_t bits;
};
constexpr Mode kModes[] = {
    {"affine", QuantizationMethod::kMlx, 64, 4},
    {"mxfp4", QuantizationMethod::kMlxMxfp4, 32, 4},
    {"mxfp8", QuantizationMethod::kMlxMxfp8, 32, 8},
    {"nvfp4", QuantizationMethod::kMlxNvfp4, 16, 4},
};

bool IsAffine(uint64_t bits) { return bits >= 1 && bits <= 8 && bits != 7; }

// A number, or what the mode has where it is not there or null. `required`: it has to be there.
uint64_t NumberOf(FieldReader* reader, const char* name, uint64_t most, uint64_t by_default,
                  bool required) {
  const json* value = reader->Find(name);
  const bool none = value == nullptr || value->is_null();
  return none && !required ? by_default : reader->Uint(name, 1, most);
}

// `where` is the object's path, for errors; `outermost`: it has other objects in it.
absl::StatusOr<StoredScheme> ParseScheme(const json& value, const std::string& where,
                                         bool outermost) {
  FieldReader reader(&value, where);
  const std::string name = reader.String("mode", "affine");
  RETURN_IF_ERROR(reader.status());
  const auto* const mode = std::find_if(std::begin(kModes), std::end(kModes),
                                        [&](const Mode& one) { return name == one.name; });
  if (mode == std::end(kModes)) {
    return UnsupportedQuantization(absl::StrCat(where, "mode ", Quoted(name)));
  }
  const bool affine = mode->method == QuantizationMethod::kMlx;
  const uint64_t bits = NumberOf(&reader, "bits", 64, mode->bits, outermost);
  const uint64_t group = NumberOf(&reader, "group_size", kMaxQuantizationGroup, mode->group, false);
  RETURN_IF_ERROR(reader.status());
  const std::string of_mode = affine ? "" : absl::StrCat(" of mode ", Quoted(name));
  if (affine ? !IsAffine(bits) : bits != mode->bits) {
    return UnsupportedQuantization(absl::StrCat(where, "bits ", bits, of_mode));
  }
  if (affine ? !IsAffineGroup(group) : group != mode->group) {
    return UnsupportedQuantization(absl::StrCat(where, "group_size ", group, of_mode));
  }
  StoredScheme scheme;
  scheme.method = mode->method;
  scheme.integers = {static_cast<uint32_t>(bits), static_cast<uint32_t>(group)};
  return scheme;
}

}  // namespace

absl::StatusOr<QuantizationSpec> ParseMlxQuantization(const json& mlx) {
  if (!mlx.is_object()) {
    return UnsupportedQuantization("quantization " + QuotedValue(mlx));
  }
  QuantizationSpec spec;
  ASSIGN_OR_RETURN(static_cast<StoredScheme&>(spec), ParseScheme(mlx, "quantization.", true));
  for (const auto& [path, value] : mlx.items()) {
    // A path that is not quantized says false; its missing scales say so too.
    if (value.is_object()) {
      ASSIGN_OR_RETURN(spec.by_path[path],
                       ParseScheme(value, absl::StrCat("quantization.", Quoted(path), "."), false));
    }
  }
  return spec;
}

void ReadAsMlx(json* config) {
  const auto mlx = config->find("quantization");
  if (mlx == config->end() || !mlx->is_object() || mlx->empty()) {
    return;
  }
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config->find(name);
    if (rope != config->end() && rope->is_object() && rope->contains("truncate") &&
        (*rope)["truncate"] == false) {
      (*rope)["truncate"] = true;
    }
  }
}

}  // namespace strata
