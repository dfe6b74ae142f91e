// What the header of a GGUF file says of its model, as the config.json that ParseModelConfig reads.
// Internal to the reader of GGUF files.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_CONFIG_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_architecture.h"
#include "common/checkpoint/gguf_rope.h"

namespace strata {

struct GgufConfig {
  std::string config_json;
  std::string generation_config_json;
};
// `tensors` are those of all the model's files, under the checkpoint's names. Errors name the key
// or the tensor; UNIMPLEMENTED keys that change what is computed and that are not supported yet.
absl::StatusOr<GgufConfig> WriteGgufConfig(const GgufArchitecture& architecture,
                                           const GgufHeader& header,
                                           const std::vector<TensorEntry>& tensors,
                                           const GgufFactors& factors);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_CONFIG_H_
