#include "tests/worker/backend/conformance/conforming_backends.h"

#include <utility>

#include "common/status.h"
#include "tests/worker/backend/models/golden_runs.h"

namespace strata::testing {
void PrintTo(const BackendKind& kind, std::ostream* out) { *out << kind.name; }

const std::vector<BackendKind>& ConformingBackends() {
  static const std::vector<BackendKind> kKinds = [] {
    std::vector<BackendKind> kinds = AllKinds();
    std::erase_if(kinds, [](const BackendKind& kind) {
      const std::string reason = ReasonOf(kind.make().status());
      return reason == "BACKEND_ABSENT" || reason == "DEVICE_ABSENT";
    });
    return kinds;
  }();
  return kKinds;
}

std::string KindName(const ::testing::TestParamInfo<BackendKind>& info) { return info.param.name; }

bool IsRefusal(const absl::Status& status) {
  if (status.ok()) {
    return false;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_EQ(ReasonOf(status), "BACKEND_UNSUPPORTED") << status;
  return absl::IsUnimplemented(status);
}

void BackendTestBase::MakeBackendOf(const BackendKind& kind) {
  auto backend = kind.make();
  ASSERT_TRUE(backend.ok()) << backend.status();
  backend_ = *std::move(backend);
}

std::unique_ptr<Shard> BackendConformance::LoadOrRefuse(const MadeUpModel& model,
                                                        const MadeUpStage& stage) {
  auto shard = backend_->Load(stage.spec, model, nullptr, nullptr);
  if (shard.ok()) {
    return *std::move(shard);
  }
  EXPECT_TRUE(IsRefusal(shard.status()));
  EXPECT_EQ(backend_->Supports(stage.spec).code(), shard.status().code());
  return nullptr;
}

void GoldenConformance::SetUp() {
  ASSERT_NO_FATAL_FAILURE(MakeBackendOf(std::get<BackendKind>(GetParam())));
  const auto forward = TryLoad(backend_.get(), model_, format(), {});
  if (!forward.ok()) {
    ASSERT_TRUE(IsRefusal(forward.status()));
    GTEST_SKIP() << forward.status();
  }
}

std::unique_ptr<ForwardModel> GoldenConformance::Load(const ForwardOptions& options) {
  auto forward = TryLoad(backend_.get(), model_, format(), options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  return *std::move(forward);
}

std::string KindAndFormatName(
    const ::testing::TestParamInfo<std::tuple<BackendKind, GoldenFormat>>& info) {
  return std::get<BackendKind>(info.param).name + "_" +
         TestName(std::get<GoldenFormat>(info.param));
}

}  // namespace strata::testing
