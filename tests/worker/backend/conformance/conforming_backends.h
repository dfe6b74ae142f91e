// What any backend must do, whatever device computes: the tests of this folder know the seam
// (worker/backend) alone, and take a backend by its name. docs/HACKING.md, "Add a backend".
#ifndef STRATA_TESTS_WORKER_BACKEND_CONFORMANCE_CONFORMING_BACKENDS_H_
#define STRATA_TESTS_WORKER_BACKEND_CONFORMANCE_CONFORMING_BACKENDS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/footprint/footprint.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_model.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/backend.h"

namespace strata::testing {

// A kind of backend, and how the suite gets one.
struct BackendKind {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make;
  // What planner and worker count by; lives for ever. Null: its ranks have one each
  // (RankFootprint).
  const Footprint* footprint = nullptr;
};
void PrintTo(const BackendKind& kind, std::ostream* out);

// Of the program that is linked: all that MakeBackend knows (kinds.cc), or the CUDA backend on an
// emulated device (../cuda/emulated_kind.cc).
std::vector<BackendKind> AllKinds();
// Those that this build has; those that are absent are left out.
const std::vector<BackendKind>& ConformingBackends();
std::string KindName(const ::testing::TestParamInfo<BackendKind>& info);

// Whether the backend may leave this out: it says by a typed error that it does not support it. Any
// other error fails the test.
bool IsRefusal(const absl::Status& status);

// A test on a backend of its own.
class BackendTestBase : public ::testing::Test {
 protected:
  // Fails the test where there is no backend.
  void MakeBackendOf(const BackendKind& kind);
  std::unique_ptr<Backend> backend_;
};

// With the kind as its parameter.
class BackendConformance : public BackendTestBase,
                           public ::testing::WithParamInterface<BackendKind> {
 protected:
  void SetUp() override { MakeBackendOf(GetParam()); }
  // The model whole; null where the backend refuses it by a typed error. Any other fails the test.
  std::unique_ptr<Shard> LoadOrRefuse(const MadeUpModel& model, const MadeUpStage& stage);
};

// And a golden model in one of its formats, which is skipped where the backend refuses it.
class GoldenConformance
    : public BackendTestBase,
      public ::testing::WithParamInterface<std::tuple<BackendKind, GoldenFormat>> {
 protected:
  void SetUp() override;
  const GoldenFormat& format() const { return std::get<GoldenFormat>(GetParam()); }
  // In the format under test; what was loaded once with other options is loaded with these.
  std::unique_ptr<ForwardModel> Load(const ForwardOptions& options = {});

  const GoldenModel model_ = LoadGoldenModel(format().model);
};
std::string KindAndFormatName(
    const ::testing::TestParamInfo<std::tuple<BackendKind, GoldenFormat>>& info);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_CONFORMANCE_CONFORMING_BACKENDS_H_
