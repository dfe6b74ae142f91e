// Golden models on a backend: loaded, and computed in every mixture of rows that must not matter.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_RUNS_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_RUNS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_model.h"

namespace strata::testing {

// Whether both are the same floats, bit for bit, and there are any.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);
// Infinitely far where either has a NaN. Fails the test where the sizes differ.
float LargestDifference(const std::vector<float>& a, const std::vector<float>& b);

// The model with its own context, if that is less. In the format's numerics; or as it is stored.
absl::StatusOr<std::unique_ptr<ForwardModel>> TryLoad(Backend* backend, const GoldenModel& model,
                                                      const GoldenFormat& format,
                                                      ForwardOptions options);
// Fails the test where the model is not loaded.
std::unique_ptr<ForwardModel> LoadOn(Backend* backend, const GoldenModel& model,
                                     const ForwardOptions& options = {});

// The logits of all rows of a new sequence. Fails the test, and is empty, where a step does.
std::vector<float> LogitsOf(ForwardModel* forward, const std::vector<uint32_t>& ids,
                            uint32_t chunk = 0, uint32_t rotary_variant = 0,
                            const InputEmbeddings& embeddings = {});
std::vector<float> LogitsOf(ForwardModel* forward, const GoldenCase& one, uint32_t chunk = 0);

const GoldenCase& LongestCase(const GoldenModel& model);

// The logits of all cases, computed in the same steps, rows_of(step, case) of each in every step.
std::vector<std::vector<float>> RunTogether(ForwardModel* forward,
                                            const std::vector<GoldenCase>& cases,
                                            const std::function<size_t(size_t, size_t)>& rows_of);

// The most sequences of ExpectNoBatchSizeChangesABit, which max_batch_items has to allow.
inline constexpr size_t kMostTogether = 64;
// Decode steps of 1 to kMostTogether sequences behind one prefix of `ids`, each with a token of its
// own: every row is what it is alone. `alone`, if empty, becomes that.
void ExpectNoBatchSizeChangesABit(ForwardModel* forward, std::span<const uint32_t> ids,
                                  std::vector<std::vector<float>>* alone);

// The format's name as a test's.
std::string TestName(const GoldenFormat& format);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_RUNS_H_
