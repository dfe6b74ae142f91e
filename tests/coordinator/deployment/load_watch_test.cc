#include "coordinator/deployment/load_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace strata {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class LoadWatchTest : public ::testing::Test {
 protected:
  LoadWatchTest() {
    v1::PlanPipeline* pipeline = plan_.add_pipelines();
    for (const char* node : {"a", "b"}) {
      v1::PlanStage* stage = pipeline->add_stages();
      stage->add_ranks()->set_node(node);
      stage->set_weight_bytes(100);
    }
    watch_.Begin(now_);
  }
  LoadPart Stage(int i) const { return LoadPartsOf(plan_)[static_cast<size_t>(i)]; }
  // Of the part that is slowest; "": all are ready.
  std::string SlowestNode() const {
    const auto slowest = watch_.Slowest(plan_);
    return slowest.has_value() ? slowest->rank->node() : "";
  }
  void Say(const std::string& node, v1::LoadProgress::Phase phase, uint64_t done_bytes) {
    v1::LoadProgress progress;
    progress.set_phase(phase);
    progress.set_done_bytes(done_bytes);
    progress.set_total_bytes(200);
    watch_.OnProgress(node, progress, now_);
  }

  v1::Plan plan_;
  TimePoint now_ = seconds(1000);
  LoadWatch watch_{seconds(60)};
};

TEST_F(LoadWatchTest, AWorkerIsSilentSinceItLastGotFurther) {
  now_ += seconds(1);
  Say("a", v1::LoadProgress::PHASE_FETCHING, 10);
  const TimePoint advanced = now_;
  now_ += seconds(5);
  Say("a", v1::LoadProgress::PHASE_FETCHING, 10);  // No further.
  EXPECT_EQ(watch_.SilentSince(Stage(0)), advanced);
  EXPECT_EQ(watch_.SilentSince(Stage(1)), seconds(1000));
  EXPECT_EQ(SlowestNode(), "b");
  watch_.Excuse(now_);
  EXPECT_EQ(watch_.SilentSince(Stage(0)), now_);
  EXPECT_EQ(watch_.SilentSince(Stage(1)), now_);
}

TEST_F(LoadWatchTest, AllAreReadyOnceEachSaidSoOfTheseLoads) {
  Say("a", v1::LoadProgress::PHASE_READY, 200);
  EXPECT_TRUE(watch_.Ready(Stage(0)));
  EXPECT_FALSE(watch_.AllReady(plan_));
  Say("b", v1::LoadProgress::PHASE_READY, 200);
  EXPECT_TRUE(watch_.AllReady(plan_));
  EXPECT_EQ(SlowestNode(), "");
  watch_.Begin(now_);
  EXPECT_FALSE(watch_.Ready(Stage(0)));
}

TEST_F(LoadWatchTest, SaysHowFarEachIs) {
  Say("a", v1::LoadProgress::PHASE_PACKING, 50);
  now_ += seconds(2);
  const auto workers = watch_.Describe(plan_, /*loading=*/true, now_);
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].phase(), "packing");
  EXPECT_EQ(workers[0].silent_s(), 2);
  EXPECT_EQ(workers[0].limit_s(), 60);
  EXPECT_EQ(workers[1].phase(), "waiting");
  EXPECT_EQ(workers[1].total_bytes(), 100u);  // The plan's, until it says.
  EXPECT_EQ(watch_.Describe(plan_, /*loading=*/false, now_)[0].limit_s(), 0);
  EXPECT_THAT(watch_.WaitFor(Stage(0), "m").what, HasSubstr("packing, 25 %"));
  EXPECT_THAT(watch_.WaitFor(Stage(1), "m").what, HasSubstr("has said nothing yet"));
}

TEST_F(LoadWatchTest, AStageIsReadyOnceAllItsRanksAre) {
  v1::PlanStage* shared = plan_.mutable_pipelines(0)->mutable_stages(1);
  v1::PlanRank* rank = shared->add_ranks();
  rank->set_node("c");
  rank->set_weight_bytes(40);
  for (const char* node : {"a", "b"}) {
    Say(node, v1::LoadProgress::PHASE_READY, 200);
  }
  EXPECT_FALSE(watch_.AllReady(plan_));
  EXPECT_EQ(SlowestNode(), "c");
  const auto workers = watch_.Describe(plan_, /*loading=*/true, now_);
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_EQ(workers[2].node(), "c");
  EXPECT_EQ(workers[2].total_bytes(), 40u);
  Say("c", v1::LoadProgress::PHASE_READY, 40);
  EXPECT_TRUE(watch_.AllReady(plan_));
}

}  // namespace
}  // namespace strata
