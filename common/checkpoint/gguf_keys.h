// Which keys of a GGUF file's header would change what is computed, and are not looked at.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_KEYS_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_KEYS_H_

#include "absl/status/status.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_architecture.h"

namespace strata {

// UNIMPLEMENTED names a key that says something other than that it changes nothing, and one of
// attention or rotation that is not known. INVALID_ARGUMENT names a key of the wrong type.
absl::Status CheckGgufKeys(const GgufArchitecture& architecture, const GgufHeader& header);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_KEYS_H_
