// By which fields of config.json a decoder has a tensor, and of which size: for messages about
// tensors that are missing, that nothing asked for, or that have another shape. Internal to opening
// a checkpoint.
#ifndef STRATA_COMMON_CHECKPOINT_TENSOR_FIELDS_H_
#define STRATA_COMMON_CHECKPOINT_TENSOR_FIELDS_H_

#include <set>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace strata {

// Of all `names`; sizes aside. Empty where it is the family alone.
std::set<std::string> FieldsBehind(const Checkpoint& checkpoint,
                                   const std::vector<std::string>& names);

// By which a tensor that the decoder has is as large as it has to be.
std::set<std::string> FieldsOfSize(const Checkpoint& checkpoint, const std::string& name);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_TENSOR_FIELDS_H_
