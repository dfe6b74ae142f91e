// Whether a checkpoint that says that its head is its embedding has a head besides. Internal to
// opening a checkpoint.
#ifndef STRATA_COMMON_CHECKPOINT_TIED_HEAD_H_
#define STRATA_COMMON_CHECKPOINT_TIED_HEAD_H_

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"

namespace strata {

// Refuses a head of a tied model that is no copy of the embedding: transformers 5 would compute
// with it. Reads both tensors where there are two.
absl::Status CheckTiedHead(const Checkpoint& checkpoint);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_TIED_HEAD_H_
