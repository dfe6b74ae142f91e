#include "worker/node/stage_epochs.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

class StageEpochsTest : public ::testing::Test {
 protected:
  using Act = FenceAct;

  static constexpr uint64_t kDeployment = 5;
  static constexpr nanoseconds kStepTimeout = milliseconds(3000);

  static StagePlace Place() {
    return {.node = "w1",
            .incarnation = 11,
            .deployment = kDeployment,
            .stage = 1,
            .max_in_flight = 3,
            .next_node = "w2",
            .next_incarnation = 12,
            .step_timeout = kStepTimeout};
  }
  static v1::LinkOpen Open(uint64_t epoch) {
    v1::LinkOpen open;
    open.set_from_node("w0");
    open.set_deployment(kDeployment);
    open.set_epoch(epoch);
    open.set_to_stage(1);
    return open;
  }
  static absl::Status Refusal(std::string_view reason) {
    return Error(absl::StatusCode::kFailedPrecondition, reason, "no");
  }

  FenceStep Next() { return epochs_.Next(now_); }

  // Fences and opens the link onward. The acknowledgement.
  v1::FenceAck Fence(uint64_t epoch) {
    epochs_.Fence(epoch);
    EXPECT_EQ(Next().act, Act::kBegin);
    epochs_.OnBegun(absl::OkStatus(), now_);
    const FenceStep dial = Next();
    EXPECT_EQ(dial.act, Act::kDial);
    EXPECT_EQ(dial.open.epoch(), epoch);
    epochs_.OnDialed(absl::OkStatus(), now_);
    const FenceStep done = Next();
    EXPECT_EQ(done.act, Act::kAcknowledge);
    return done.ack;
  }

  static v1::NextHop Hop(const std::string& node) {
    v1::NextHop next;
    next.set_node(node);
    next.set_incarnation(12);
    return next;
  }
  // Opens the link onward ahead of its fence. The acknowledgement.
  v1::FenceAck LinkAhead(uint64_t epoch, const std::string& next) {
    const v1::NextHop hop = Hop(next);
    epochs_.OpenAhead(epoch, &hop);
    const FenceStep dial = Next();
    EXPECT_EQ(dial.act, Act::kDial);
    EXPECT_TRUE(dial.ahead);
    EXPECT_EQ(dial.open.epoch(), epoch);
    EXPECT_EQ(dial.open.to_node(), next);
    epochs_.OnDialed(absl::OkStatus(), now_);
    const FenceStep done = Next();
    EXPECT_EQ(done.act, Act::kAcknowledge);
    return done.ack;
  }

  LinkId Accept(uint64_t epoch) {
    const LinkVerdict verdict = epochs_.Accept(Open(epoch), now_, now_);
    EXPECT_FALSE(verdict.waits);
    EXPECT_TRUE(verdict.status.ok()) << verdict.status;
    return verdict.link;
  }
  std::string Refused(const v1::LinkOpen& open) {
    return ReasonOf(epochs_.Accept(open, now_ - milliseconds(1000), now_).status);
  }

  TimePoint now_ = milliseconds(5000);
  StageEpochs epochs_{Place()};
};

TEST_F(StageEpochsTest, AFenceEndsTheOldLinksAndOpensTheOneOnward) {
  EXPECT_FALSE(Fence(3).has_error());
  const LinkId link = Accept(3);
  epochs_.Fence(4);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin);
  EXPECT_EQ(begin.epoch, 4u);
  EXPECT_EQ(begin.ended, link);
  EXPECT_EQ(ReasonOf(begin.why), "FENCED");
  EXPECT_TRUE(begin.clears);
  EXPECT_TRUE(begin.closes);
  EXPECT_EQ(Next().act, Act::kWait) << "the runner is not fenced yet";
  EXPECT_EQ(ReasonOf(epochs_.MayTake(link)), "LINK_REPLACED");
  EXPECT_EQ(ReasonOf(epochs_.MaySend(3)), "LINK_NOT_OPEN");
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(epochs_.epoch(), 4u);
  const FenceStep dial = Next();
  ASSERT_EQ(dial.act, Act::kDial);
  EXPECT_EQ(dial.open.from_node(), "w1");
  EXPECT_EQ(dial.open.from_incarnation(), 11u);
  EXPECT_EQ(dial.open.to_node(), "w2");
  EXPECT_EQ(dial.open.to_incarnation(), 12u);
  EXPECT_EQ(dial.open.deployment(), kDeployment);
  EXPECT_EQ(dial.open.epoch(), 4u);
  EXPECT_EQ(dial.open.to_stage(), 2u);
  EXPECT_EQ(ReasonOf(epochs_.MaySend(4)), "LINK_NOT_OPEN");
  epochs_.OnDialed(absl::OkStatus(), now_);
  EXPECT_TRUE(epochs_.MaySend(4).ok());
  const FenceStep done = Next();
  ASSERT_EQ(done.act, Act::kAcknowledge);
  EXPECT_EQ(done.ack.epoch(), 4u);
  EXPECT_FALSE(done.ack.has_error());
  EXPECT_EQ(Next().act, Act::kWait);
}

TEST_F(StageEpochsTest, LinksOpenedAheadAreFoundByTheFenceOfTheirEpoch) {
  Fence(3);
  const LinkId old = Accept(3);
  const v1::FenceAck ack = LinkAhead(7, "w4");
  EXPECT_TRUE(ack.ahead());
  EXPECT_EQ(ack.epoch(), 7u);
  EXPECT_FALSE(ack.has_error());
  const LinkVerdict verdict = epochs_.Accept(Open(7), now_, now_);
  ASSERT_TRUE(verdict.status.ok()) << verdict.status;
  EXPECT_TRUE(verdict.ahead);
  EXPECT_EQ(verdict.replaced, 0u) << "the link in use";
  EXPECT_TRUE(epochs_.MayTake(old).ok()) << "nothing has ended";
  EXPECT_TRUE(epochs_.MaySend(3).ok());
  EXPECT_EQ(ReasonOf(epochs_.MayTake(verdict.link)), "LINK_REPLACED")
      << "no frame before its fence";
  EXPECT_EQ(ReasonOf(epochs_.MaySend(7)), "LINK_NOT_OPEN");
  epochs_.SetNext(Hop("w4"));
  epochs_.Fence(7);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin);
  EXPECT_EQ(begin.ended, old);
  EXPECT_TRUE(begin.closes);
  EXPECT_TRUE(begin.adopts_onward);
  EXPECT_TRUE(begin.adopts_inbound);
  EXPECT_EQ(ReasonOf(epochs_.MayTake(verdict.link)), "LINK_REPLACED") << "the runner is not fenced";
  EXPECT_EQ(ReasonOf(epochs_.MaySend(3)), "LINK_NOT_OPEN") << "the step at hand";
  epochs_.OnBegun(absl::OkStatus(), now_);
  const FenceStep done = Next();
  ASSERT_EQ(done.act, Act::kAcknowledge) << "without dialling";
  EXPECT_FALSE(done.ack.ahead());
  EXPECT_EQ(done.ack.epoch(), 7u);
  EXPECT_EQ(epochs_.inbound(), verdict.link);
  EXPECT_TRUE(epochs_.MayTake(verdict.link).ok());
  EXPECT_TRUE(epochs_.MaySend(7).ok());
  EXPECT_TRUE(epochs_.Fault(7, 0, Refusal("LINK_BROKEN")).has_value()) << "as of any link";
}

TEST_F(StageEpochsTest, KvIsTakenOverBeforeBothAnswers) {
  Fence(3);
  v1::KvSource from;
  from.mutable_worker()->set_node("w9");
  from.set_loaded_epoch(2);
  const v1::NextHop hop = Hop("w4");
  epochs_.OpenAhead(7, &hop, &from);
  ASSERT_EQ(Next().act, Act::kDial);
  epochs_.OnDialed(absl::OkStatus(), now_);
  const FenceStep pages = Next();
  ASSERT_EQ(pages.act, Act::kCarry);
  EXPECT_TRUE(pages.ahead);
  ASSERT_EQ(pages.kv_from.size(), 1u);
  EXPECT_EQ(pages.kv_from[0].worker().node(), "w9");
  EXPECT_EQ(pages.kv_from[0].loaded_epoch(), 2u);
  EXPECT_EQ(Next().act, Act::kWait) << "until it is done";
  epochs_.OnCarried(true);
  const FenceStep done = Next();
  ASSERT_EQ(done.act, Act::kAcknowledge);
  EXPECT_TRUE(done.ack.carried());
  epochs_.SetNext(hop);
  epochs_.Fence(7);
  ASSERT_EQ(Next().act, Act::kBegin);
  epochs_.OnBegun(absl::OkStatus(), now_);
  const FenceStep rest = Next();
  ASSERT_EQ(rest.act, Act::kCarry);
  EXPECT_FALSE(rest.ahead);
  EXPECT_LT(rest.timeout, pages.timeout) << "requests wait";
  epochs_.OnCarried(false);
  const FenceStep fenced = Next();
  ASSERT_EQ(fenced.act, Act::kAcknowledge) << "what is missing is computed again";
  EXPECT_FALSE(fenced.ack.has_error());
  epochs_.Fence(8);
  EXPECT_EQ(Next().act, Act::kBegin);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kDial);
  epochs_.OnDialed(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kAcknowledge) << "another epoch takes over nothing";
}

TEST_F(StageEpochsTest, KvOfSeveralStagesIsTakenOverForOneAnswer) {
  Fence(3);
  const v1::NextHop hop = Hop("w4");
  v1::KvSource first;
  first.mutable_worker()->set_node("w8");
  v1::KvSource second;
  second.mutable_worker()->set_node("w9");
  EXPECT_FALSE(epochs_.TakesMore(7, &first));
  epochs_.OpenAhead(7, &hop, &first);
  ASSERT_EQ(Next().act, Act::kDial);
  epochs_.OnDialed(absl::OkStatus(), now_);
  ASSERT_EQ(Next().act, Act::kCarry);
  const LinkId link = Accept(7);
  EXPECT_TRUE(epochs_.TakesMore(7, &second));
  epochs_.OpenAhead(7, &hop, &second);
  epochs_.OnCarried(false);  // Whoever carries is told to end.
  const FenceStep pages = Next();
  ASSERT_EQ(pages.act, Act::kCarry) << "the link is open already, and no answer is due";
  ASSERT_EQ(pages.kv_from.size(), 2u);
  EXPECT_EQ(pages.kv_from[0].worker().node(), "w8");
  EXPECT_EQ(pages.kv_from[1].worker().node(), "w9");
  epochs_.OnCarried(true);
  const FenceStep done = Next();
  ASSERT_EQ(done.act, Act::kAcknowledge);
  EXPECT_TRUE(done.ack.carried());
  EXPECT_EQ(Next().act, Act::kWait) << "one answer";
  EXPECT_EQ(epochs_.ahead_inbound(), link);
  epochs_.SetNext(hop);
  epochs_.Fence(7);
  const FenceStep begin = Next();
  EXPECT_TRUE(begin.adopts_inbound && begin.adopts_onward);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().kv_from.size(), 2u);
}

TEST_F(StageEpochsTest, KvThatDidNotComeAheadIsNotAskedForByTheFence) {
  Fence(3);
  v1::KvSource from;
  const v1::NextHop hop = Hop("w4");
  epochs_.OpenAhead(7, &hop, &from);
  Next();
  epochs_.OnDialed(absl::OkStatus(), now_);
  ASSERT_EQ(Next().act, Act::kCarry);
  epochs_.SetNext(hop);
  epochs_.Fence(7);
  EXPECT_EQ(Next().act, Act::kWait) << "whoever carries is told to end";
  epochs_.OnCarried(false);
  ASSERT_EQ(Next().act, Act::kBegin);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kAcknowledge);
}

TEST_F(StageEpochsTest, AnotherFenceClosesLinksOpenedAhead) {
  Fence(3);
  LinkAhead(7, "w2");
  const LinkId ahead = Accept(7);
  epochs_.Fence(4);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin);
  EXPECT_FALSE(begin.adopts_onward);
  EXPECT_FALSE(begin.adopts_inbound);
  EXPECT_TRUE(begin.clears);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kDial);
  epochs_.OnDialed(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kAcknowledge);
  EXPECT_EQ(epochs_.ahead_inbound(), 0u);
  EXPECT_EQ(ReasonOf(epochs_.MayTake(ahead)), "LINK_REPLACED");
  EXPECT_EQ(Refused(Open(7)), "EPOCH_NOT_LOADED");
  EXPECT_FALSE(Fence(7).has_error()) << "which dials";
}

TEST_F(StageEpochsTest, AFenceThatPassesOnToAnotherStageClosesLinksOpenedAhead) {
  Fence(3);
  LinkAhead(7, "w4");
  epochs_.Fence(7);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin);
  EXPECT_FALSE(begin.adopts_onward) << "it leads to w4";
  EXPECT_FALSE(begin.adopts_inbound);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().open.to_node(), "w2");
}

TEST_F(StageEpochsTest, WhatBrokeOfLinksOpenedAheadTheFenceOpensAnew) {
  Fence(3);
  LinkAhead(7, "w2");
  const LinkId ahead = Accept(7);
  EXPECT_FALSE(epochs_.OnInboundClosed(ahead, Refusal("LINK_BROKEN")).has_value());
  EXPECT_FALSE(epochs_.Fault(7, 0, Refusal("LINK_BROKEN")).has_value()) << "it is of no account";
  epochs_.Fence(7);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin);
  EXPECT_FALSE(begin.adopts_onward);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(epochs_.inbound(), 0u);
  EXPECT_EQ(Next().act, Act::kDial);
  epochs_.OnDialed(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kAcknowledge);
  EXPECT_TRUE(epochs_.MayTake(Accept(7)).ok());
}

TEST_F(StageEpochsTest, AFenceOvertakesLinksThatAreOpenedAhead) {
  Fence(3);
  epochs_.OpenAhead(7, nullptr);
  ASSERT_EQ(Next().act, Act::kDial);
  epochs_.OnDialed(Refusal("EPOCH_NOT_LOADED"), now_);
  ASSERT_EQ(Next().act, Act::kWait) << "until the next try";
  epochs_.Fence(4);
  ASSERT_EQ(Next().act, Act::kBegin) << "without a word of the other";
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().open.epoch(), 4u);
  epochs_.OnDialed(absl::OkStatus(), now_);
  EXPECT_EQ(Next().ack.epoch(), 4u);
  EXPECT_EQ(Next().act, Act::kWait);
  epochs_.OpenAhead(4, nullptr);
  EXPECT_EQ(Next().act, Act::kWait) << "that epoch has begun";
}

TEST_F(StageEpochsTest, TheSameFenceAgainKeepsTheLinks) {
  Fence(3);
  const LinkId link = Accept(3);
  epochs_.Fence(3);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin);
  EXPECT_EQ(begin.ended, 0u);
  EXPECT_FALSE(begin.clears);
  EXPECT_FALSE(begin.closes);
  epochs_.OnBegun(absl::OkStatus(), now_);
  EXPECT_EQ(Next().act, Act::kAcknowledge);
  EXPECT_TRUE(epochs_.MayTake(link).ok());
  EXPECT_TRUE(epochs_.MaySend(3).ok());
}

TEST_F(StageEpochsTest, WhatTheRunnerSaysOfAnOldFenceIsAcknowledged) {
  epochs_.Fence(3);
  ASSERT_EQ(Next().act, Act::kBegin);
  epochs_.OnBegun(Refusal("STALE_EPOCH"), now_);
  const FenceStep done = Next();
  ASSERT_EQ(done.act, Act::kAcknowledge);
  EXPECT_EQ(done.ack.error().reason(), "STALE_EPOCH");
  EXPECT_EQ(epochs_.epoch(), 0u);
}

TEST_F(StageEpochsTest, TheNextStageIsDialledUntilTheStepTimeout) {
  const TimePoint began = now_;
  epochs_.Fence(3);
  ASSERT_EQ(Next().act, Act::kBegin);
  epochs_.OnBegun(absl::OkStatus(), now_);
  int tries = 0;
  FenceStep step = Next();
  while (step.act != Act::kAcknowledge) {
    if (step.act == Act::kDial) {
      ++tries;
      EXPECT_LE(now_ + step.timeout, began + kStepTimeout + milliseconds(1));
      now_ += milliseconds(700);
      epochs_.OnDialed(Refusal("EPOCH_NOT_LOADED"), now_);
    } else {
      ASSERT_EQ(step.act, Act::kWait);
      ASSERT_EQ(step.until, now_ + milliseconds(50));
      now_ = step.until;
    }
    step = Next();
  }
  EXPECT_EQ(tries, 4);
  EXPECT_EQ(step.ack.error().reason(), "EPOCH_NOT_LOADED");
}

TEST_F(StageEpochsTest, ARefusalThatStaysIsAcknowledgedAtOnce) {
  for (const std::string_view reason : {"WRONG_NODE", "WRONG_STAGE", "STALE_EPOCH"}) {
    StageEpochs epochs(Place());
    epochs.Fence(3);
    ASSERT_EQ(epochs.Next(now_).act, Act::kBegin);
    epochs.OnBegun(absl::OkStatus(), now_);
    ASSERT_EQ(epochs.Next(now_).act, Act::kDial);
    epochs.OnDialed(Refusal(reason), now_);
    EXPECT_EQ(epochs.Next(now_).ack.error().reason(), reason);
  }
}

TEST_F(StageEpochsTest, ANewerFenceReplacesOneThatStillDials) {
  epochs_.Fence(3);
  ASSERT_EQ(Next().act, Act::kBegin);
  epochs_.OnBegun(absl::OkStatus(), now_);
  ASSERT_EQ(Next().act, Act::kDial);
  epochs_.Fence(4);
  EXPECT_EQ(Next().act, Act::kWait) << "one fence is at work at a time";
  epochs_.OnDialed(Refusal("EPOCH_NOT_LOADED"), now_);
  const FenceStep begin = Next();
  ASSERT_EQ(begin.act, Act::kBegin) << "nobody waits for an acknowledgement of epoch 3";
  EXPECT_EQ(begin.epoch, 4u);
}

TEST_F(StageEpochsTest, ALinkWaitsALittleForTheFenceOfItsEpoch) {
  Fence(3);
  const TimePoint since = now_;
  EXPECT_TRUE(epochs_.Accept(Open(4), since, now_).waits);
  now_ = epochs_.AcceptsUntil(since);
  LinkVerdict late = epochs_.Accept(Open(4), since, now_);
  EXPECT_FALSE(late.waits);
  EXPECT_EQ(ReasonOf(late.status), "EPOCH_NOT_LOADED");
  Fence(4);
  EXPECT_TRUE(epochs_.Accept(Open(4), since, now_).status.ok());
}

TEST_F(StageEpochsTest, LinksOfOtherStagesAndEpochsAreRefused) {
  Fence(4);
  EXPECT_EQ(Refused(Open(3)), "STALE_EPOCH");
  EXPECT_EQ(Refused(Open(5)), "EPOCH_NOT_LOADED");
  v1::LinkOpen open = Open(4);
  open.set_to_stage(2);
  EXPECT_EQ(Refused(open), "WRONG_STAGE");
  open = Open(4);
  open.set_pipeline(1);
  EXPECT_EQ(Refused(open), "WRONG_STAGE");
  open = Open(4);
  open.clear_from_node();
  EXPECT_EQ(Refused(open), "WRONG_STAGE");
}

TEST_F(StageEpochsTest, ALinkThatIsOpenedAgainReplacesTheFirst) {
  Fence(3);
  const LinkId first = Accept(3);
  const LinkVerdict again = epochs_.Accept(Open(3), now_, now_);
  EXPECT_EQ(again.replaced, first);
  EXPECT_EQ(ReasonOf(again.why), "LINK_REPLACED");
  EXPECT_FALSE(epochs_.MayTake(first).ok());
  EXPECT_TRUE(epochs_.MayTake(again.link).ok());
  EXPECT_FALSE(epochs_.OnInboundClosed(first, absl::CancelledError()).has_value());
}

TEST_F(StageEpochsTest, OneFaultEndsAnEpoch) {
  Fence(3);
  const LinkId link = Accept(3);
  const auto fault = epochs_.OnStepFailed(3, 9, Refusal("STEP_GAP"));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->deployment(), kDeployment);
  EXPECT_EQ(fault->epoch(), 3u);
  EXPECT_EQ(fault->step(), 9u);
  EXPECT_EQ(fault->stage(), 1u);
  EXPECT_EQ(fault->error().reason(), "STEP_GAP");
  EXPECT_FALSE(epochs_.OnInboundClosed(link, absl::CancelledError()).has_value());
  EXPECT_FALSE(epochs_.Fault(3, 0, absl::CancelledError()).has_value());
  EXPECT_FALSE(epochs_.MayTake(link).ok()) << "the link is closed";
  // The next epoch has one of its own.
  Fence(4);
  EXPECT_TRUE(epochs_.OnInboundClosed(Accept(4), absl::CancelledError()).has_value());
}

TEST_F(StageEpochsTest, FaultsOfEpochsThatAreFencedOffAreNotTold) {
  Fence(3);
  epochs_.Fence(4);
  EXPECT_FALSE(epochs_.Fault(3, 1, absl::UnavailableError("broken")).has_value());
}

TEST_F(StageEpochsTest, AFrameThatNamesANewerEpochIsAFaultOfTheLoadedOne) {
  Fence(3);
  const auto fault = epochs_.OnStepFailed(900, 1, Refusal("EPOCH_NOT_LOADED"));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->epoch(), 3u);
}

TEST_F(StageEpochsTest, AStageThatIsUnloadedTakesAndTellsNothingMore) {
  Fence(3);
  const LinkId link = Accept(3);
  epochs_.Fence(4);
  EXPECT_EQ(epochs_.Stop(), link);
  EXPECT_EQ(Next().act, Act::kWait);
  EXPECT_FALSE(epochs_.MayTake(link).ok());
  EXPECT_EQ(Refused(Open(4)), "UNLOADED");
  EXPECT_FALSE(epochs_.Fault(4, 1, absl::UnavailableError("broken")).has_value());
}

TEST_F(StageEpochsTest, OneFrameMoreThanStepsInFlightMayWait) {
  EXPECT_EQ(epochs_.max_waiting(), 4u);
  EXPECT_EQ(DetailOf(epochs_.TooManySteps()).limit(), "steps_in_flight=3");
}

}  // namespace
}  // namespace strata
