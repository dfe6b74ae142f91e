#include "coordinator/members/members.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kTerm = 7;
constexpr nanoseconds kLease = std::chrono::seconds(5);

class MembersTest : public ::testing::Test {
 protected:
  MembersTest()
      : cluster_({.lease = kLease, .heartbeat = kLease / 5}),
        members_(kTerm, &cluster_, &deployments_, &streams_,
                 [this](const std::string& node) { lost_.push_back(node); }) {}

  std::shared_ptr<NodeChannel> Join(uint64_t incarnation) {
    v1::NodeInfo info;
    info.set_name("a");
    info.set_incarnation(incarnation);
    auto channel = std::make_shared<NodeChannel>();
    joined_ = members_.Join(info, channel, now_);
    return channel;
  }
  bool Alive() const { return cluster_.Find("a") != nullptr && cluster_.Find("a")->alive; }
  v1::WorkerMessage Heartbeat() const {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_term(kTerm);
    return message;
  }
  // As often as the event loop.
  void Pass(nanoseconds time) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ += milliseconds(100);
      members_.Expire(now_);
    }
  }

  ClusterState cluster_;
  ControlStreams streams_;
  Deployments deployments_;
  std::vector<std::string> lost_;
  absl::Status joined_;
  TimePoint now_ = std::chrono::seconds(1000);
  Members members_;
};

TEST_F(MembersTest, AHeartbeatIsAnsweredAndRenewsTheLease) {
  const auto channel = Join(1);
  ASSERT_TRUE(joined_.ok());
  EXPECT_EQ(members_.Welcome().term(), kTerm);
  EXPECT_EQ(members_.Welcome().lease_ms(), 5000u);
  Pass(kLease - milliseconds(200));
  EXPECT_TRUE(members_.OnMessage("a", 1, Heartbeat(), now_));
  const auto answer = channel->TryNext();
  ASSERT_TRUE(answer.has_value() && answer->has_lease_renewed());
  EXPECT_EQ(answer->lease_renewed().term(), kTerm);
  Pass(kLease - milliseconds(200));
  EXPECT_TRUE(Alive());
  EXPECT_TRUE(lost_.empty());
}

TEST_F(MembersTest, ANodeWhoseLeaseLapsesIsLostOnceAndItsStreamEnds) {
  const auto channel = Join(1);
  Pass(2 * kLease);
  EXPECT_EQ(lost_, std::vector<std::string>{"a"});
  EXPECT_FALSE(Alive());
  EXPECT_TRUE(channel->closed());
  EXPECT_FALSE(streams_.Speaks("a", 1));
}

TEST_F(MembersTest, TheSameIncarnationOnANewStreamReplacesTheOldOne) {
  const auto old = Join(1);
  const auto channel = Join(1);
  ASSERT_TRUE(joined_.ok());
  EXPECT_EQ(lost_, std::vector<std::string>{"a"}) << "what ran there has ended with its stream";
  EXPECT_TRUE(old->closed());
  EXPECT_FALSE(channel->closed());
  // The end of the old stream is heard late.
  members_.OnStreamEnded("a", 1, old);
  EXPECT_TRUE(Alive());
  members_.OnStreamEnded("a", 1, channel);
  EXPECT_FALSE(Alive());
}

TEST_F(MembersTest, ANodeWhoseDeviceFailedIsLostOnceThoughItsStreamGoesOn) {
  const auto channel = Join(1);
  v1::WorkerMessage heartbeat = Heartbeat();
  heartbeat.mutable_heartbeat()->mutable_unfit()->set_message("it fell off the bus");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(members_.OnMessage("a", 1, heartbeat, now_));
  }
  EXPECT_EQ(lost_, std::vector<std::string>{"a"});
  EXPECT_FALSE(channel->closed());
  EXPECT_TRUE(Alive());
  EXPECT_TRUE(cluster_.Find("a")->unfit());
}

TEST_F(MembersTest, AnotherIncarnationOfALiveNodeIsRefusedAndLeavesItsStream) {
  const auto channel = Join(1);
  Join(2);
  EXPECT_EQ(ReasonOf(joined_), "NAME_TAKEN");
  EXPECT_TRUE(streams_.Speaks("a", 1));
  EXPECT_FALSE(channel->closed());
  EXPECT_TRUE(lost_.empty());
}

TEST_F(MembersTest, WhatIsNoneOfItsMessagesIsLeftToOthers) {
  Join(1);
  v1::WorkerMessage message;
  message.mutable_peer_measured()->set_node("b");
  EXPECT_FALSE(members_.OnMessage("a", 1, message, now_));
  // Of a deployment that is not there.
  message.mutable_fence_ack()->set_deployment(99);
  EXPECT_TRUE(members_.OnMessage("a", 1, message, now_));
}

}  // namespace
}  // namespace strata
