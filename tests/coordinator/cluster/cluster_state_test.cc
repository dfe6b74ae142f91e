#include "coordinator/cluster/cluster_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

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
  info.set_numerics("cpu-2");
  info.set_read_bytes_per_s(1e9);
  info.set_flops_per_s(1e9);
  return info;
}

class ClusterStateTest : public ::testing::Test {
 protected:
  static TimePoint At(int s) { return seconds(s); }
  // Looks for lapsed leases as often as the loop does, without `from` itself; all that lapsed.
  std::vector<std::string> LookFromTo(int from_s, int to_s) {
    std::vector<std::string> lapsed;
    for (TimePoint now = At(from_s); now < At(to_s);) {
      now += std::chrono::milliseconds(100);
      for (std::string& name : state_.Expire(now)) lapsed.push_back(std::move(name));
    }
    return lapsed;
  }
  std::vector<v1::Problem> Problems() const {
    ProblemList problems;
    state_.AddProblems([this](const std::string& node) { return node == used_ ? "m" : ""; },
                       &problems);
    return problems.Take();
  }
  // What options say of nodes that left, and of those that do not measure.
  ClusterState state_{ClusterOptions{.lease = seconds(5),
                                     .heartbeat = seconds(1),
                                     .forget_after = seconds(100),
                                     .measure_timeout = seconds(30)}};
  std::string used_;  // A node that a model has layers on.
};

TEST_F(ClusterStateTest, ATakenNameIsRefusedWhileItsNodeLives) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  const absl::Status refused = state_.Join(Info("a", 2), At(1));
  EXPECT_EQ(ReasonOf(refused), "NAME_TAKEN");
  EXPECT_THAT(Describe(refused), HasSubstr("--name"));
  EXPECT_TRUE(state_.Leave("a", 1));
  EXPECT_TRUE(state_.Join(Info("a", 2), At(2)).ok());
}

TEST_F(ClusterStateTest, DevicesOfANodeAreForPlansAndForPeople) {
  v1::NodeInfo info = Info("a", 1);
  info.set_host_memory_bytes(500);
  for (const uint32_t i : {0u, 1u}) {
    v1::NodeDevice& device = *info.add_devices();
    device.set_index(i + 2);
    device.set_name("GPU of tests");
    device.set_memory_bytes(i == 0 ? 600 : 400);
    device.set_share_begin(i == 0 ? 0 : 49152);
    device.set_share_end(i == 0 ? 49152 : 65536);
    device.set_read_bytes_per_s(3e9);
  }
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  const std::vector<PlannerDevice> devices = state_.Snapshot(0).nodes[0].devices;
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].index, 3u);
  EXPECT_EQ(devices[1].of_stage.memory_bytes, 400u);
  EXPECT_EQ(devices[1].of_stage.share, (OutputRange{49152, 65536}));
  const v1::Node shown = state_.Describe(*state_.Find("a"), At(1));
  ASSERT_EQ(shown.devices_size(), 2);
  EXPECT_EQ(shown.devices(0).index(), 2u);
  EXPECT_EQ(shown.devices(0).name(), "GPU of tests");
  EXPECT_EQ(shown.devices(0).memory_bytes(), 600u);
  EXPECT_EQ(shown.devices(0).share(), 0.75);
  EXPECT_EQ(shown.devices(0).read_bytes_per_s(), 3e9);
}

TEST_F(ClusterStateTest, ANodeWithoutHeartbeatsLapses) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  EXPECT_THAT(LookFromTo(0, 4), IsEmpty());
  state_.Heartbeat("a", 1, {}, At(4));
  EXPECT_THAT(LookFromTo(4, 9), IsEmpty());
  EXPECT_THAT(LookFromTo(9, 10), ElementsAre("a"));
  EXPECT_THAT(LookFromTo(10, 20), IsEmpty());
  EXPECT_TRUE(state_.Snapshot(0).nodes.empty());
}

TEST_F(ClusterStateTest, AStallOfTheCoordinatorLosesNoNodeWhoseHeartbeatsWait) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  ASSERT_TRUE(state_.Join(Info("b", 2), At(0)).ok());
  EXPECT_THAT(LookFromTo(0, 1), IsEmpty());
  // The first look after a minute comes before what was said meanwhile.
  EXPECT_THAT(state_.Expire(At(60)), IsEmpty());
  state_.Heartbeat("a", 1, {}, At(60));
  // One that stays silent is lost a lease later.
  EXPECT_THAT(LookFromTo(60, 65), IsEmpty());
  state_.Heartbeat("a", 1, {}, At(65));
  EXPECT_THAT(LookFromTo(65, 66), ElementsAre("b"));
}

TEST_F(ClusterStateTest, ANodeThatIsHeardAfterEachStallOutlivesAllOfThem) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  EXPECT_THAT(state_.Expire(At(0)), IsEmpty());
  // Its heartbeat is taken in before the first look, then after it.
  state_.Heartbeat("a", 1, {}, At(60));
  EXPECT_THAT(state_.Expire(At(60)), IsEmpty());
  EXPECT_THAT(state_.Expire(At(120)), IsEmpty());
  state_.Heartbeat("a", 1, {}, At(120));
  EXPECT_THAT(state_.Expire(At(180)), IsEmpty());
}

TEST_F(ClusterStateTest, ASilentNodeIsLostThoughTheCoordinatorStallsAgainAndAgain) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  EXPECT_THAT(state_.Expire(At(0)), IsEmpty());
  EXPECT_THAT(state_.Expire(At(2)), IsEmpty());  // Excused: its lease ends at 7 s.
  EXPECT_THAT(state_.Expire(At(4)), IsEmpty());
  EXPECT_THAT(state_.Expire(At(6)), IsEmpty());
  EXPECT_THAT(state_.Expire(At(8)), ElementsAre("a"));
}

TEST_F(ClusterStateTest, HeartbeatsAndLeavesOfAnOldIncarnationChangeNothing) {
  ASSERT_TRUE(state_.Join(Info("a", 2), At(0)).ok());
  state_.Heartbeat("a", 1, {}, At(100));
  EXPECT_FALSE(state_.Leave("a", 1));
  EXPECT_THAT(LookFromTo(0, 6), ElementsAre("a"));
}

TEST_F(ClusterStateTest, PlacedMemoryIsNotFree) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  state_.SetPlacement("a", 7, {.bytes = 300, .what = "m layers 0-3", .ready = true});
  EXPECT_EQ(state_.Snapshot(0).nodes[0].free_bytes, 600u);
  EXPECT_EQ(state_.Snapshot(7).nodes[0].free_bytes, 900u);
  EXPECT_EQ(ReasonOf(state_.Remove("a")), "NODE_IN_USE");
  state_.ClearPlacement(7);
  EXPECT_TRUE(state_.Remove("a").ok());
}

TEST_F(ClusterStateTest, NodesWithOneHostInTheirAddressesAreOfOneMachine) {
  for (const auto& [name, address] : {std::pair("a", "10.0.0.1:7071"),
                                      {"b", "10.0.0.1:7072"},
                                      {"c", "10.0.0.2:7071"},
                                      {"d", "[fe80::1]:7071"},
                                      {"e", "[fe80::1]:7072"}}) {
    v1::NodeInfo info = Info(name, 1);
    info.set_address(address);
    ASSERT_TRUE(state_.Join(info, At(0)).ok());
  }
  const std::vector<PlannerNode> nodes = state_.Snapshot(0).nodes;
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[0].machine, nodes[1].machine);
  EXPECT_NE(nodes[0].machine, nodes[2].machine);
  EXPECT_EQ(nodes[3].machine, nodes[4].machine);
  for (const PlannerNode& node : nodes) {
    EXPECT_NE(node.machine, "") << node.name;
  }
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
  state_.SetLink("a", "b", broken, At(1));
  ASSERT_EQ(Problems().size(), 1u);
  EXPECT_THAT(Problems()[0].what(),
              HasSubstr("node a (host-a:7071) cannot reach b at host-b:7071"));
  EXPECT_THAT(Problems()[0].do_(), HasSubstr("--advertise"));
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "ready");
  EXPECT_EQ(state_.Describe(At(0))[1].state(), "unreachable");
  EXPECT_GT(state_.Snapshot(0).links[0][1].latency_ms, 1e6);
}

TEST_F(ClusterStateTest, ANodeThatTheCoordinatorCannotReachIsAProblemThatSaysSo) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  LinkMeasure broken;
  broken.error =
      Error(absl::StatusCode::kUnavailable, "UNREACHABLE", "connection refused").Detail();
  state_.SetLink("a", "", broken, At(1));
  ASSERT_EQ(Problems().size(), 1u);
  EXPECT_THAT(Problems()[0].what(),
              HasSubstr("the coordinator cannot reach node a at host-a:7071"));
  EXPECT_THAT(Problems()[0].do_(), HasSubstr("--advertise"));
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "unreachable");
  state_.SetLink("a", "", {0.2, 1e8, {}, 0}, At(1));
  EXPECT_TRUE(Problems().empty());
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "ready");
}

TEST_F(ClusterStateTest, NothingIsPlacedOnANodeThatIsLeaving) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  v1::Heartbeat leaving;
  leaving.set_leaving(true);
  state_.Heartbeat("a", 1, leaving, At(0));
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "draining");
  EXPECT_TRUE(state_.Snapshot(0).nodes.empty());
  EXPECT_TRUE(state_.Leave("a", 1));
  ASSERT_TRUE(state_.Join(Info("a", 2), At(1)).ok());
  EXPECT_EQ(state_.Snapshot(0).nodes.size(), 1u) << "its next life begins anew";
}

TEST_F(ClusterStateTest, NothingIsPlacedOnANodeWhoseDeviceFailedAndStatusSaysWhatToDo) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  v1::Heartbeat heartbeat;
  EXPECT_FALSE(state_.Heartbeat("a", 1, heartbeat, At(0)));
  heartbeat.mutable_unfit()->set_message("it fell off the bus");
  heartbeat.mutable_unfit()->set_hint("restart it");
  EXPECT_FALSE(state_.Heartbeat("a", 9, heartbeat, At(0))) << "another life's";
  EXPECT_TRUE(state_.Heartbeat("a", 1, heartbeat, At(0)));
  EXPECT_FALSE(state_.Heartbeat("a", 1, heartbeat, At(1))) << "that is known";
  EXPECT_EQ(state_.Describe(At(1))[0].state(), "unfit");
  EXPECT_EQ(state_.Describe(At(1))[0].unfit(), "it fell off the bus");
  EXPECT_TRUE(state_.Snapshot(0).nodes.empty());
  used_ = "a";
  ASSERT_EQ(Problems().size(), 1u);
  EXPECT_EQ(Problems()[0].what(),
            "node a (host-a:7071) cannot compute any more: it fell off the bus");
  EXPECT_EQ(Problems()[0].do_(),
            "restart it; `strata model load m` places the model on other nodes");
  // Its process starts anew.
  EXPECT_TRUE(state_.Leave("a", 1));
  ASSERT_TRUE(state_.Join(Info("a", 2), At(2)).ok());
  EXPECT_EQ(state_.Describe(At(2))[0].state(), "ready");
  EXPECT_TRUE(Problems().empty());
}

TEST_F(ClusterStateTest, AProcessThatJoinsAnewWithAFailedDeviceIsUnfitAtOnce) {
  v1::NodeInfo info = Info("a", 1);
  info.mutable_unfit()->set_message("it fell off the bus");
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  EXPECT_TRUE(state_.Snapshot(0).nodes.empty());
  EXPECT_EQ(state_.Describe(At(0))[0].state(), "unfit");
}

TEST_F(ClusterStateTest, ANodeThatSaysNoSpeedIsPlannedWithACautiousOne) {
  v1::NodeInfo info = Info("a", 1);
  info.clear_read_bytes_per_s();
  info.clear_flops_per_s();
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  ASSERT_TRUE(state_.Join(Info("b", 1), At(0)).ok());
  const PlannerCluster cluster = state_.Snapshot(0);
  EXPECT_EQ(cluster.nodes[0].read_bytes_per_s, 5e9);
  EXPECT_EQ(cluster.nodes[0].flops_per_s, 5e10);
  EXPECT_EQ(cluster.nodes[1].read_bytes_per_s, 1e9);
  EXPECT_EQ(state_.Describe(At(0))[0].read_bytes_per_s(), 0) << "not known is said";
}

TEST_F(ClusterStateTest, WhatIsUsedIsOfTheMemoryThatStagesAreIn) {
  v1::NodeInfo info = Info("a", 1);
  v1::Heartbeat heartbeat;
  heartbeat.set_used_bytes(70);
  heartbeat.set_device_used_bytes(400);
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  state_.Heartbeat("a", 1, heartbeat, At(0));
  EXPECT_EQ(state_.Describe(At(0))[0].used_bytes(), 70u);
  EXPECT_EQ(state_.Describe(At(0))[0].host_memory_bytes(), 0u);
  EXPECT_TRUE(state_.Leave("a", 1));
  info.set_incarnation(2);
  info.set_host_memory_bytes(2000);
  info.set_device("cuda");
  info.set_device_name("NVIDIA H200");
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  state_.Heartbeat("a", 2, heartbeat, At(0));
  const v1::Node node = state_.Describe(At(0))[0];
  EXPECT_EQ(node.used_bytes(), 400u);
  EXPECT_EQ(node.host_used_bytes(), 70u);
  EXPECT_EQ(node.host_memory_bytes(), 2000u);
  EXPECT_EQ(node.device(), "cuda");
  EXPECT_EQ(node.device_name(), "NVIDIA H200");
  EXPECT_EQ(state_.Snapshot(0).nodes[0].device_name, "NVIDIA H200");
}

TEST_F(ClusterStateTest, WhatADevicesStagesTakeOfTheHostIsCountedApart) {
  v1::NodeInfo info = Info("a", 1);
  info.set_memory_bytes(1000);
  info.set_fixed_bytes(100);
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  state_.SetPlacement("a", 7, {.bytes = 300, .host_bytes = 0, .what = "m layers 0-1"});
  EXPECT_EQ(state_.Snapshot(0).nodes[0].free_bytes, 600u);
  EXPECT_EQ(state_.Snapshot(0).nodes[0].host_free_bytes, std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(state_.Leave("a", 1));
  state_.ClearPlacement(7);
  info.set_incarnation(2);
  info.set_host_memory_bytes(500);  // Of which the process takes its part.
  ASSERT_TRUE(state_.Join(info, At(0)).ok());
  state_.SetPlacement("a", 7, {.bytes = 300, .host_bytes = 150, .what = "m layers 0-1"});
  EXPECT_EQ(state_.Snapshot(0).nodes[0].free_bytes, 700u);
  EXPECT_EQ(state_.Snapshot(0).nodes[0].host_free_bytes, 250u);
  EXPECT_EQ(state_.Snapshot(7).nodes[0].host_free_bytes, 400u);
  state_.SetPlacement("a", 8, {.bytes = 300, .host_bytes = 900, .what = "n layers 0-1"});
  EXPECT_EQ(state_.Snapshot(0).nodes[0].host_free_bytes, 0u);
}

TEST_F(ClusterStateTest, AMeasureOfAPeersFormerLifeIsDropped) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  ASSERT_TRUE(state_.Join(Info("b", 3), At(0)).ok());
  LinkMeasure measure{0.2, 1e8, {}, 2};
  state_.SetLink("a", "b", measure, At(1));
  EXPECT_TRUE(state_.Find("a")->links.empty());
  measure.peer_incarnation = 3;
  state_.SetLink("a", "b", measure, At(1));
  EXPECT_DOUBLE_EQ(state_.Snapshot(0).links[0][1].latency_ms, 0.2);
}

TEST_F(ClusterStateTest, ANodeThatLeftIsForgettableAfterAWhileUnlessItIsDrainedOrHoldsSomething) {
  for (const char* name : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(state_.Join(Info(name, 1), At(0)).ok());
  }
  state_.Restore(Info("e", 1), false, At(50));
  for (const char* name : {"a", "b", "c"}) state_.Leave(name, 1);
  ASSERT_TRUE(state_.SetDraining("b", true).ok());
  state_.SetPlacement("c", 7, {.bytes = 1, .what = "m layers 0-1", .ready = false});
  EXPECT_THAT(state_.Gone(), ElementsAre("a", "b", "e"));
  EXPECT_THAT(state_.Forgettable(At(99)), IsEmpty());
  EXPECT_THAT(state_.Forgettable(At(100)), ElementsAre("a"));
  EXPECT_THAT(state_.Forgettable(At(150)), ElementsAre("a", "e"));
}

TEST_F(ClusterStateTest, ManyProblemsOfOneKindAreOne) {
  const auto lose = [this](const std::string& name) {
    EXPECT_TRUE(state_.Join(Info(name, 1), At(0)).ok());
    EXPECT_TRUE(state_.Leave(name, 1));
  };
  for (const char* name : {"n1", "n2", "n3"}) lose(name);
  ASSERT_EQ(Problems().size(), 3u);
  EXPECT_THAT(Problems()[0].do_(), HasSubstr("`strata node remove n1`"));
  for (int i = 4; i <= 1500; ++i) lose("n" + std::to_string(i));
  ASSERT_EQ(Problems().size(), 1u);
  EXPECT_THAT(Problems()[0].what(), HasSubstr("1500 nodes are lost: n1, "));
  EXPECT_THAT(Problems()[0].what(), HasSubstr("and 1495 more"));
  EXPECT_THAT(Problems()[0].do_(), HasSubstr("`strata node remove --gone`"));
  used_ = "n7";
  ASSERT_EQ(Problems().size(), 2u);
  EXPECT_THAT(Problems()[0].what() + Problems()[1].what(), HasSubstr("node n7 (host-n7:7071)"));
}

TEST_F(ClusterStateTest, ANodeThatSaysNothingOfItsLinksOwesThemUntilItDoes) {
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(state_.Join(Info(name, 1), At(0)).ok());
  }
  state_.BeginMeasure("a", "b", At(1));
  state_.BeginMeasure("a", "c", At(2));
  state_.BeginMeasure("a", "b", At(20));
  const auto owed = [this] { return state_.OwedMeasures(*state_.Find("a")); };
  ASSERT_TRUE(owed().has_value());
  EXPECT_EQ(owed()->since, At(1)) << "asking again does not make it younger";
  EXPECT_THAT(owed()->peers, ElementsAre("b", "c"));
  const LinkMeasure measure{
      .latency_ms = 1, .bytes_per_s = 1e9, .error = {}, .peer_incarnation = 1};
  state_.SetLink("a", "c", measure, At(40));
  ASSERT_TRUE(owed().has_value());
  EXPECT_EQ(owed()->since, At(40)) << "it says something: the rest may come";
  EXPECT_TRUE(state_.Leave("b", 1));
  EXPECT_FALSE(owed().has_value()) << "nobody can measure that link any more";
}

TEST_F(ClusterStateTest, ANodeWhoseDiskIsFullIsAProblemUntilThereIsRoom) {
  ASSERT_TRUE(state_.Join(Info("a", 1), At(0)).ok());
  v1::Heartbeat heartbeat;
  state_.Heartbeat("a", 1, heartbeat, At(1));
  EXPECT_THAT(Problems(), IsEmpty()) << "nobody knows";
  heartbeat.set_disk_free_bytes(4096);
  state_.Heartbeat("a", 1, heartbeat, At(2));
  ASSERT_EQ(Problems().size(), 1u);
  EXPECT_THAT(Problems()[0].what(), HasSubstr("disk of --data-dir of node a has 4.0 KiB free"));
  heartbeat.set_disk_free_bytes(uint64_t{16} << 20);
  state_.Heartbeat("a", 1, heartbeat, At(3));
  EXPECT_THAT(Problems(), IsEmpty());
}

}  // namespace
}  // namespace strata
