// The tokens that begin and end texts, by a GGUF file's keys and by their texts, as fields of
// config.json and generation_config.json. Internal to the reader of GGUF files.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_ENDS_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_ENDS_H_

#include "absl/status/status.h"
#include "common/checkpoint/gguf.h"
#include "nlohmann/json_fwd.hpp"

namespace strata {

// `config` has its vocab_size. A model stops at each of the ends. INVALID_ARGUMENT names the key
// that is wrong.
absl::Status WriteGgufEnds(const GgufHeader& header, nlohmann::json* config,
                           nlohmann::json* generation);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_ENDS_H_
