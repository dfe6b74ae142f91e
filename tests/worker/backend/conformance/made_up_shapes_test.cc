// Every shape of a layer gives what a plain program in double gives, in pieces of any size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/backend/models/golden_runs.h"

namespace strata::testing {
namespace {

class MadeUpShapeConformance
    : public BackendTestBase,
      public ::testing::WithParamInterface<std::tuple<BackendKind, size_t>> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(MakeBackendOf(std::get<BackendKind>(GetParam())));
    auto forward = ForwardModel::Load(backend_.get(), model_.spec(), model_, {});
    if (!forward.ok()) {
      ASSERT_TRUE(IsRefusal(forward.status()));
      GTEST_SKIP() << forward.status();
    }
    forward_ = *std::move(forward);
  }
  const MadeUpModel model_{MadeUpShapes()[std::get<size_t>(GetParam())]};
  std::unique_ptr<ForwardModel> forward_;
};

TEST_P(MadeUpShapeConformance, LogitsAreThoseOfAPlainProgram) {
  const std::vector<uint32_t> ids = SomeIds(70, model_.spec().vocab);
  const std::vector<double> expected = model_.PlainLogits(ids);
  const std::vector<float> got = LogitsOf(forward_.get(), ids, 31);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 5e-5 * std::max(1.0, std::abs(expected[i]))) << i;
  }
}

TEST_P(MadeUpShapeConformance, NeitherChunksNorStagesChangeABit) {
  const std::vector<uint32_t> ids = SomeIds(90, model_.spec().vocab);
  const std::vector<float> whole = LogitsOf(forward_.get(), ids);
  EXPECT_TRUE(SameBits(LogitsOf(forward_.get(), ids, 9), whole));
  ForwardOptions options;
  options.cuts = CutEverywhere(static_cast<uint32_t>(model_.spec().layers.size()));
  const auto cut = ForwardModel::Load(backend_.get(), model_.spec(), model_, options);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_TRUE(SameBits(LogitsOf(cut->get(), ids, 1), whole));
}

INSTANTIATE_TEST_SUITE_P(Shapes, MadeUpShapeConformance,
                         ::testing::Combine(::testing::ValuesIn(ConformingBackends()),
                                            ::testing::Range(size_t{0}, MadeUpShapes().size())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace strata::testing
