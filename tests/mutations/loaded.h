// Whether a checkpoint that was opened computes what its original does.
#ifndef STRATA_TESTS_MUTATIONS_LOADED_H_
#define STRATA_TESTS_MUTATIONS_LOADED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "worker/backend/backend.h"

namespace strata::testing {

// The logits of a short prompt, of every row; or why the backend refuses the model.
absl::StatusOr<std::vector<float>> LogitsOfModel(Backend* backend, const ModelSpec& spec,
                                                 const TensorSource& weights);

// Whether `said` names one of the fields, or a tensor, whose shape contradicts what was changed.
bool NamesOne(const std::string& said, const std::vector<std::string>& fields);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_LOADED_H_
