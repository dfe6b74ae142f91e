#include "worker/node/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kTerm = 4;
constexpr uint64_t kCoordinator = 77;  // Its incarnation.
constexpr nanoseconds kLease = milliseconds(10'000);
constexpr nanoseconds kBeat = milliseconds(2000);

v1::CoordinatorMessage Registered() {
  v1::CoordinatorMessage message;
  message.mutable_registered()->set_term(kTerm);
  message.mutable_registered()->set_lease_ms(10'000);
  message.mutable_registered()->set_heartbeat_ms(2000);
  return message;
}

v1::CoordinatorMessage Renewed(uint64_t term) {
  v1::CoordinatorMessage message;
  message.mutable_lease_renewed()->set_term(term);
  return message;
}

class MembershipTest : public ::testing::Test {
 protected:
  using Act = MembershipAct;

  Act Next() { return membership_.Next(now_).act; }

  // Registered, knows its coordinator, and has sent its first heartbeat.
  void Join() {
    ASSERT_EQ(Next(), Act::kRegister);
    membership_.BeginLife(now_);
    membership_.OnMessage(Registered(), now_);
    ASSERT_EQ(Next(), Act::kAskWhoAnswers);
    membership_.OnAnswer(kCoordinator, now_);
    const MembershipStep step = membership_.Next(now_);
    ASSERT_EQ(step.act, Act::kSendHeartbeat);
    ASSERT_EQ(step.term, kTerm);
  }

  // Waits until the lease has lapsed, heartbeats on the way, and somebody is to be asked for.
  void Lapse() {
    while (true) {
      const MembershipStep step = membership_.Next(now_);
      if (step.act == Act::kTellLapsed) {
        ASSERT_EQ(Next(), Act::kAskWhoAnswers);
        return;
      }
      ASSERT_TRUE(step.act == Act::kWait || step.act == Act::kSendHeartbeat);
      if (step.act == Act::kWait) {
        ASSERT_GT(step.until, now_);
        now_ = step.until;
      }
    }
  }

  // Goes on until somebody is to be asked for again.
  void WaitToAsk() {
    for (MembershipStep step = membership_.Next(now_); step.act != Act::kAskWhoAnswers;
         step = membership_.Next(now_)) {
      ASSERT_TRUE(step.act == Act::kWait || step.act == Act::kSendHeartbeat);
      now_ = step.act == Act::kWait ? step.until : now_;
    }
  }

  TimePoint now_ = milliseconds(1000);
  Membership membership_{"there:7070"};
};

TEST_F(MembershipTest, HeartbeatsFollowEachOtherAsTheCoordinatorWants) {
  Join();
  MembershipStep step = membership_.Next(now_);
  EXPECT_EQ(step.act, Act::kWait);
  EXPECT_EQ(step.until, now_ + kBeat);
  now_ += milliseconds(500);
  membership_.BeatSoon();
  EXPECT_EQ(Next(), Act::kSendHeartbeat);
  step = membership_.Next(now_);
  EXPECT_EQ(step.act, Act::kWait);
  EXPECT_EQ(step.until, now_ + kBeat);
}

TEST_F(MembershipTest, ARegistrationThatNobodyAnswersEnds) {
  ASSERT_EQ(Next(), Act::kRegister);
  membership_.BeginLife(now_);
  const MembershipStep step = membership_.Next(now_);
  ASSERT_EQ(step.act, Act::kWait);
  now_ = step.until;
  ASSERT_EQ(Next(), Act::kEndLife);
  EXPECT_EQ(ReasonOf(membership_.EndLife(absl::CancelledError(), now_)), "REGISTER_TIMEOUT");
}

TEST_F(MembershipTest, AttemptsThatFailAreFurtherAndFurtherApart) {
  std::vector<nanoseconds> pauses;
  for (int i = 0; i < 7; ++i) {
    ASSERT_EQ(Next(), Act::kRegister);
    membership_.OnUnreachable(now_);
    const MembershipStep step = membership_.Next(now_);
    ASSERT_EQ(step.act, Act::kWait);
    pauses.push_back(step.until - now_);
    now_ = step.until;
  }
  const auto ms = [](int64_t n) { return nanoseconds(milliseconds(n)); };
  EXPECT_EQ(pauses, (std::vector<nanoseconds>{ms(200), ms(400), ms(800), ms(1600), ms(3200),
                                              ms(5000), ms(5000)}));
  // A life that was one begins them anew.
  Join();
  membership_.OnStreamEnded();
  ASSERT_EQ(Next(), Act::kEndLife);
  membership_.EndLife(absl::OkStatus(), now_).IgnoreError();
  EXPECT_EQ(membership_.Next(now_).until, now_ + ms(200));
}

TEST_F(MembershipTest, OnlyTheFirstRegistrationsRefusalIsFinal) {
  const absl::Status taken = Error(absl::StatusCode::kAlreadyExists, "NAME_TAKEN", "taken");
  membership_.BeginLife(now_);
  membership_.OnStreamEnded();
  ASSERT_EQ(Next(), Act::kEndLife);
  const absl::Status why = membership_.EndLife(taken, now_);
  EXPECT_EQ(why, taken);
  EXPECT_TRUE(membership_.IsFinal(why));
  EXPECT_FALSE(membership_.IsFinal(absl::UnavailableError("gone")));
  now_ = membership_.Next(now_).until;
  Join();
  EXPECT_FALSE(membership_.IsFinal(taken));
}

TEST_F(MembershipTest, ABrokenStreamEndsTheLifeAndSaysSo) {
  Join();
  membership_.OnStreamEnded();
  ASSERT_EQ(Next(), Act::kEndLife);
  EXPECT_TRUE(membership_.registered());
  const absl::Status why = membership_.EndLife(absl::UnavailableError("reset"), now_);
  EXPECT_THAT(why.message(), HasSubstr("the control stream broke"));
  EXPECT_FALSE(membership_.registered());
}

TEST_F(MembershipTest, RenewalsOfItsTermKeepTheLeaseThoseOfAnotherDoNot) {
  Join();
  const TimePoint joined = now_;
  now_ = joined + milliseconds(9000);
  membership_.OnMessage(Renewed(kTerm), now_);
  now_ = joined + kLease;
  EXPECT_EQ(Next(), Act::kSendHeartbeat);
  membership_.OnMessage(Renewed(kTerm + 1), now_);
  Lapse();
  EXPECT_EQ(now_, joined + milliseconds(9000) + kLease);
}

TEST_F(MembershipTest, TermsThatAreToldAnewHoldFromThenOn) {
  Join();
  now_ += milliseconds(100);
  v1::CoordinatorMessage shorter = Registered();
  shorter.mutable_registered()->set_lease_ms(300);
  membership_.OnMessage(shorter, now_);
  const TimePoint told = now_;
  Lapse();
  EXPECT_EQ(now_, told + milliseconds(300));
}

TEST_F(MembershipTest, ALapsedLeaseKeepsTheLifeWhileNobodyAnswers) {
  Join();
  Lapse();
  for (int i = 0; i < 100; ++i) {
    membership_.OnAnswer(0, now_);
    WaitToAsk();
  }
  // It renews the lease when it is back: the life goes on.
  membership_.OnAnswer(0, now_);
  membership_.OnMessage(Renewed(kTerm), now_);
  EXPECT_EQ(Next(), Act::kTellRenewed);
  EXPECT_TRUE(membership_.registered());
}

TEST_F(MembershipTest, AnotherCoordinatorThatAnswersEndsALapsedLeaseAtOnce) {
  Join();
  Lapse();
  membership_.OnAnswer(kCoordinator + 1, now_);
  ASSERT_EQ(Next(), Act::kEndLife);
  const absl::Status why = membership_.EndLife(absl::CancelledError(), now_);
  EXPECT_EQ(ReasonOf(why), "LEASE_LAPSED");
  EXPECT_THAT(why.message(), HasSubstr("another coordinator"));
}

TEST_F(MembershipTest, TheSameCoordinatorHasAnotherLeaseFromItsFirstAnswer) {
  Join();
  Lapse();
  const TimePoint lapsed = now_;
  while (Next() != Act::kEndLife) {
    membership_.OnAnswer(kCoordinator, now_);
    if (Next() == Act::kEndLife) {
      break;
    }
    WaitToAsk();
  }
  EXPECT_GE(now_ - lapsed, kLease);
  EXPECT_LE(now_ - lapsed, kLease + milliseconds(1000));
  EXPECT_EQ(ReasonOf(membership_.EndLife(absl::CancelledError(), now_)), "LEASE_LAPSED");
}

TEST_F(MembershipTest, WhoeverAnswersIsAnotherWhereItsOwnNeverAnswered) {
  ASSERT_EQ(Next(), Act::kRegister);
  membership_.BeginLife(now_);
  membership_.OnMessage(Registered(), now_);
  ASSERT_EQ(Next(), Act::kAskWhoAnswers);
  membership_.OnAnswer(0, now_);
  ASSERT_EQ(Next(), Act::kSendHeartbeat);
  // It is asked for again with the next heartbeat.
  now_ += kBeat;
  ASSERT_EQ(Next(), Act::kAskWhoAnswers);
  membership_.OnAnswer(0, now_);
  ASSERT_EQ(Next(), Act::kSendHeartbeat);
  now_ += kLease;
  ASSERT_EQ(Next(), Act::kTellLapsed);
  ASSERT_EQ(Next(), Act::kAskWhoAnswers);
  membership_.OnAnswer(kCoordinator, now_);
  EXPECT_EQ(Next(), Act::kEndLife);
}

TEST_F(MembershipTest, ARenewalWhileItAsksKeepsTheLife) {
  Join();
  Lapse();
  membership_.OnMessage(Renewed(kTerm), now_);
  membership_.OnAnswer(kCoordinator + 1, now_);
  EXPECT_EQ(Next(), Act::kTellRenewed);
  EXPECT_TRUE(membership_.registered());
}

}  // namespace
}  // namespace strata
