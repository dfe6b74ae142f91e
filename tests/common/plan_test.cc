#include "common/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/status.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

v1::Plan PlanOn(const std::string& node) {
  v1::Plan plan;
  plan.add_pipelines()->add_stages()->add_ranks()->set_node(node);
  return plan;
}

TEST(Plan, HasOnePipelineAndOneRankAStage) {
  v1::Plan plan = PlanOn("a");
  EXPECT_TRUE(CheckPlanShape(plan).ok());
  OnlyPipeline(&plan)->set_kv_tokens(7);
  EXPECT_EQ(OnlyPipeline(plan).kv_tokens(), 7u);
  OnlyRank(OnlyPipeline(&plan)->mutable_stages(0))->set_incarnation(3);
  EXPECT_EQ(OnlyRank(OnlyPipeline(plan).stages(0)).node(), "a");
  EXPECT_EQ(OnlyRank(OnlyPipeline(plan).stages(0)).incarnation(), 3u);
}

TEST(Plan, OfAnotherShapeIsRefusedByName) {
  const auto why = [](const v1::Plan& plan) {
    const absl::Status status = CheckPlanShape(plan);
    EXPECT_EQ(ReasonOf(status), "PLAN_NOT_SUPPORTED");
    return DetailOf(status).message();
  };
  EXPECT_THAT(why({}), HasSubstr("0 pipelines"));
  v1::Plan two = PlanOn("a");
  two.add_pipelines();
  EXPECT_THAT(why(two), HasSubstr("2 pipelines"));
  v1::Plan none = PlanOn("a");
  none.mutable_pipelines(0)->clear_stages();
  EXPECT_THAT(why(none), HasSubstr("no stages"));
  v1::Plan shared = PlanOn("a");
  shared.mutable_pipelines(0)->add_stages();
  shared.mutable_pipelines(0)->mutable_stages(1)->add_ranks();
  shared.mutable_pipelines(0)->mutable_stages(1)->add_ranks();
  EXPECT_THAT(why(shared), HasSubstr("2 ranks in stage 1"));
}

TEST(Plan, OfAnotherProcessMayBeEmpty) {
  EXPECT_EQ(FindPipeline({}), nullptr);
  EXPECT_EQ(FindRank({}), nullptr);
  const v1::Plan plan = PlanOn("a");
  ASSERT_NE(FindPipeline(plan), nullptr);
  EXPECT_EQ(FindRank(FindPipeline(plan)->stages(0))->node(), "a");
}

TEST(Plan, IsReadThroughTheseFunctionsAlone) {
  size_t read = 0;
  for (const char* top : {"cli", "common", "coordinator", "sdk/cpp", "worker"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(testing::SourcePath(top))) {
      const std::filesystem::path& path = entry.path();
      const bool source = path.extension() == ".cc" || path.extension() == ".h";
      if (!source || path.stem() == "plan") continue;
      ++read;
      const std::string text = testing::ReadFileOrFail(path);
      for (const char* by_number : {"pipelines(0)", "ranks(0)"}) {
        EXPECT_EQ(text.find(by_number), std::string::npos)
            << path << " says " << by_number << ": see common/plan.h";
      }
    }
  }
  EXPECT_GT(read, 300u);
}

}  // namespace
}  // namespace strata
