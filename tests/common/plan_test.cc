#include "common/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

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

TEST(Plan, HasOnePipeline) {
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
  v1::PlanStage* stage = shared.mutable_pipelines(0)->add_stages();
  EXPECT_THAT(why(shared), HasSubstr("0 ranks in stage 1"));
  for (uint32_t rank = 0; rank < 9; ++rank) {
    stage->add_ranks()->set_share_begin(rank * 100);
    stage->mutable_ranks(static_cast<int>(rank))->set_share_end(rank * 100 + 100);
  }
  EXPECT_THAT(why(shared), HasSubstr("9 ranks in stage 1"));
  stage->mutable_ranks()->RemoveLast();
  EXPECT_THAT(why(shared), HasSubstr("ranks in stage 1 whose shares are not of all outputs"));
  stage->mutable_ranks(7)->set_share_end(65536);
  EXPECT_TRUE(CheckPlanShape(shared).ok());
  stage->mutable_ranks(3)->set_share_begin(301);
  EXPECT_THAT(why(shared), HasSubstr("ranks in stage 1 whose shares"));
}

v1::PlanStage StageOn(const std::vector<std::string>& nodes) {
  v1::PlanStage stage;
  for (const std::string& node : nodes) {
    stage.add_ranks()->set_node(node);
  }
  return stage;
}

TEST(Plan, AStageIsOnTheNodesOfItsRanks) {
  const v1::PlanStage stage = StageOn({"a", "b"});
  EXPECT_EQ(FirstRank(stage).node(), "a");
  EXPECT_TRUE(StageUses(stage, "b"));
  EXPECT_FALSE(StageUses(stage, "c"));
  EXPECT_EQ(NodesOf(stage), "a+b");
  EXPECT_EQ(NodesOf({}), "?");
  EXPECT_FALSE(HasSharedStage(PlanOn("a")));
  v1::Plan shared = PlanOn("a");
  *shared.mutable_pipelines(0)->add_stages() = stage;
  EXPECT_TRUE(HasSharedStage(shared));
}

TEST(Plan, RanksAreTheSameOnTheSameNodesByTheSameShares) {
  const v1::PlanStage stage = StageOn({"a", "b"});
  EXPECT_TRUE(SameRanks(stage, StageOn({"a", "b"})));
  EXPECT_FALSE(SameRanks(stage, StageOn({"b", "a"})));
  EXPECT_FALSE(SameRanks(stage, StageOn({"a"})));
  v1::PlanStage other = stage;
  other.mutable_ranks(1)->set_share_end(7);
  EXPECT_FALSE(SameRanks(stage, other));
  v1::PlanStage alone = StageOn({"a"});
  alone.mutable_ranks(0)->set_share_end(65536);
  EXPECT_TRUE(SameRanks(alone, StageOn({"a"})));
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
