// What tests/golden/bits.json says: a SHA-256 of the float32 logits of every golden case, by
// numerics class.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_DIGESTS_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_DIGESTS_H_

#include <map>
#include <string>
#include <vector>

#include "strata/v1/types.pb.h"
#include "tests/worker/backend/models/golden_model.h"

namespace strata::testing {

// By numerics class, then by "model/case".
using GoldenDigests = std::map<std::string, std::map<std::string, std::string>>;

std::string GoldenDigestsPath();
// Fails the test where the file is none.
GoldenDigests ReadGoldenDigests();

std::string DigestOf(const std::vector<float>& logits);

// The class in which a backend of these numerics computes the model.
std::string ClassOf(const std::string& numerics, const GoldenModel& model,
                    const GoldenFormat& format, v1::KvDtype kv);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_GOLDEN_DIGESTS_H_
