#include "coordinator/registry/shape_manifest.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/status.h"

namespace strata {

absl::StatusOr<ModelManifest> ManifestOfShape(std::string_view config_json) {
  if (config_json.size() > kMaxConfigBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "CONFIG_TOO_LARGE",
                 absl::StrCat("the configuration has ", config_json.size(), " bytes"))
        .Limit(absl::StrCat("bytes=", kMaxConfigBytes))
        .Hint("send the config.json of a model");
  }
  ModelManifest manifest;
  ASSIGN_OR_RETURN(manifest.spec, ParseModelConfig(config_json, ""));
  if (manifest.spec.quantization.has_value()) {
    return Error(absl::StatusCode::kUnimplemented, "NOT_SUPPORTED",
                 "the configuration is that of quantized weights, whose sizes are not in it")
        .Hint(
            "take the config.json of the model that it was made from, with --quantize int4 or "
            "int8; "
            "or add the checkpoint itself, and plan by its name");
  }
  manifest.config_json = std::string(config_json);
  const auto last = static_cast<uint32_t>(manifest.spec.layers.size()) - 1;
  std::set<std::string> seen;
  for (const StageTensor& tensor : TensorsOf(manifest.spec, 0, last, true, true)) {
    if (!seen.insert(tensor.name).second) {
      continue;
    }
    const Dtype dtype = tensor.dtypes.empty() ? Dtype::kBF16 : tensor.dtypes.front();
    uint64_t elements = 1;
    for (const uint64_t size : tensor.shape) {
      elements *= size;
    }
    manifest.tensors.push_back({.name = tensor.name,
                                .dtype = dtype,
                                .shape = tensor.shape,
                                .file = "",
                                .offset = 0,
                                .bytes = elements * DtypeBytes(dtype),
                                .sha256 = ""});
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const ManifestTensor& a, const ManifestTensor& b) { return a.name < b.name; });
  return manifest;
}

}  // namespace strata
