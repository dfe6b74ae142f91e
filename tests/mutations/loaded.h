// What mutations of checkpoints have in common: models are loaded and computed, and what is said of
// those that are refused names what is wrong.
#ifndef STRATA_TESTS_MUTATIONS_LOADED_H_
#define STRATA_TESTS_MUTATIONS_LOADED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/cost.h"
#include "tests/worker/backend/models/golden_model.h"
#include "worker/backend/backend.h"

namespace strata::testing {

// More than a page, and than the smallest windows.
inline constexpr uint32_t kPromptTokens = 24;

// The logits of a prompt of kPromptTokens, of every row; or why the backend refuses the model.
// `cost` becomes that of loading the tensors and of computing.
absl::StatusOr<std::vector<float>> LogitsOfModel(Backend* backend, const ModelSpec& spec,
                                                 const TensorSource& weights, Cost* cost = nullptr);

// Links, in `to`, all files of a golden model's folder but config.json and what it is to compute.
void LinkAllButConfig(const std::string& folder, const TempFolder& to);
// The tensors of a golden model's files, as workers get them for a spec.
FileTensors TensorsFor(const FileTensors& files, const ModelSpec& spec);

// Fails unless files of `file_bytes`, a header or a document, were read within what they could
// need: at once `most_bytes` of memory and 64 for each of theirs, in all four times as much, and an
// allocation for each 64 bytes of it.
void ExpectReadWithin(const Cost& cost, uint64_t file_bytes, uint64_t most_bytes);

// Fails unless a model of `file_bytes` was loaded within what it could need.
void ExpectLoadedWithin(const Cost& cost, uint64_t file_bytes);

// Whether `said` names one of the fields.
bool NamesOne(const std::string& said, const std::vector<std::string>& fields);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_LOADED_H_
