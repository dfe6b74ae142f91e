#include "coordinator/cluster/cluster_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::NodeInfo Info(const std::string& name, uint64_t incarnation) {
  v1::NodeInfo info;
  info.set_name(name);
  info.set_incarnation(incarnation);
  info.set_address("host-" + name + ":7071");
  info.set_memory_bytes(1000);
  info.set_fixed_bytes(100);
  info.set_numerics("cpu-1");
  info.set_read_bytes_per_s(1e9);
  info.set_flops_per_s(1e9);
  return info;
}

class ClusterStateTest : public ::testing::Test {
 protected:
  TimePoint At(int s) { return seconds(s); }
  ClusterState state_{ClusterOptions{seconds(5), seconds(1)}};
};

TEST_F(ClusterStateTest, ATakenNameIsRefusedWhileItsNodeLives) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  const absl::Status refused = state_.Join(Info("a", 2), At(1));
  EXPECT_EQ(ReasonOf(refused), "NAME_TAKEN");
  EXPECT_THAT(Describe(refused), HasSubstr("--name"));
  EXPECT_TRUE(state_.Leave("a", 1));
  EXPECT_TRUE(state_.Join(Info("a", 2), At(2)).ok());
}

TEST_F(ClusterStateTest, ANodeWithoutHeartbeatsLapses) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  state_.Heartbeat("a", 1, {}, At(4));
  EXPECT_THAT(state_.Expire(At(8)), IsEmpty());
  EXPECT_THAT(state_.Expire(At(10)), ElementsAre("a"));
  EXPECT_THAT(state_.Expire(At(20)), IsEmpty());
  EXPECT_TRUE(state_.Snapshot(0).nodes.empty());
}

TEST_F(ClusterStateTest, HeartbeatsAndLeavesOfAnOldIncarnationChangeNothing) {
  ASSERT_TRUE(state_.Join(Info("a", 2), At(0)).ok());
  state_.Heartbeat("a", 1, {}, At(100));
  EXPECT_FALSE(state_.Leave("a", 1));
  EXPECT_THAT(state_.Expire(At(6)), ElementsAre("a"));
}

TEST_F(ClusterStateTest, PlacedMemoryIsNotFree) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  state_.SetPlacement("a", 7, {300, "m layers 0-3", true});
  EXPECT_EQ(state_.Snapshot(0).nodes[0].free_bytes, 600u);
  EXPECT_EQ(state_.Snapshot(7).nodes[0].free_bytes, 900u);
  EXPECT_EQ(ReasonOf(state_.Remove("a")), "NODE_IN_USE");
  state_.ClearPlacement(7);
  EXPECT_TRUE(state_.Remove("a").ok());
}

TEST_F(ClusterStateTest, DrainingNodesTakeNoNewPlan) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  ASSERT_TRUE(state_.SetDraining("a", true).ok());
  EXPECT_TRUE(state_.Snapshot(0).nodes.empty());
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "draining");
  EXPECT_EQ(ReasonOf(state_.SetDraining("b", true)), "NODE_NOT_FOUND");
}

TEST_F(ClusterStateTest, ABrokenLinkIsAProblemThatNamesBothEndsAndTheRemedy) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  ASSERT_TRUE(state_.Join(Info("b", 2), At(0)).ok());
  LinkMeasure broken;
  broken.peer_incarnation = 2;
  broken.error =
      Error(absl::StatusCode::kUnavailable, "UNREACHABLE", "connection refused").Detail();
  state_.SetLink("a", "b", broken);
  ASSERT_EQ(state_.Problems().size(), 1u);
  EXPECT_THAT(state_.Problems()[0].what(),
              HasSubstr("node a (host-a:7071) cannot reach b at host-b:7071"));
  EXPECT_THAT(state_.Problems()[0].do_(), HasSubstr("--advertise"));
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "unreachable");
  EXPECT_GT(state_.Snapshot(0).links[0][1].latency_ms, 1e6);
}

TEST_F(ClusterStateTest, AMeasureOfAPeersFormerLifeIsDropped) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  ASSERT_TRUE(state_.Join(Info("b", 3), At(0)).ok());
  LinkMeasure measure{0.2, 1e8, {}, 2};
  state_.SetLink("a", "b", measure);
  EXPECT_TRUE(state_.Find("a")->links.empty());
  measure.peer_incarnation = 3;
  state_.SetLink("a", "b", measure);
  EXPECT_DOUBLE_EQ(state_.Snapshot(0).links[0][1].latency_ms, 0.2);
}

}  // namespace
}  // namespace strata
