// A model of which there is nothing but the configuration.
#ifndef STRATA_COORDINATOR_REGISTRY_SHAPE_MANIFEST_H_
#define STRATA_COORDINATOR_REGISTRY_SHAPE_MANIFEST_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/registry/manifest.h"

namespace strata {

// The manifest that a checkpoint of this config.json has if its weights are bfloat16, without files
// and digests: enough to plan with, and nothing can be loaded from it. Errors: those of
// ParseModelConfig; INVALID_ARGUMENT (CONFIG_TOO_LARGE); UNIMPLEMENTED (NOT_SUPPORTED) where the
// configuration is of quantized weights, whose sizes only their files tell.
absl::StatusOr<ModelManifest> ManifestOfShape(std::string_view config_json);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_SHAPE_MANIFEST_H_
