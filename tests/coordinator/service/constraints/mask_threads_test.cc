#include "coordinator/service/constraints/mask_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

std::shared_ptr<const AnswerPlan> Letters(const std::string& ebnf) {
  std::vector<std::string> tokens;
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  tokens.emplace_back("");
  auto plan = std::make_shared<AnswerPlan>();
  plan->vocabulary = *MaskVocabulary::Make(tokens, {26});
  plan->grammar = *CompiledGrammar::Compile(ebnf, plan->vocabulary->compiled);
  return plan;
}

// What its threads do on the loop is done on the test's.
class ThreadedConstraintTest : public ::testing::Test {
 protected:
  // What they have in hand uses the test.
  void TearDown() override { threads_->Stop(); }

  ThreadedConstraint::Needs Needs(MaskTimeLimits limits) {
    return {.key = "k",
            .host = {.run_on_loop =
                         [this](std::function<void()> task) {
                           const MutexLock lock(&mutex_);
                           tasks_.push_back(std::move(task));
                           changed_.NotifyAll();
                         },
                     .on_next = [this](const std::string&) { ++told_; },
                     .metrics = &metrics_},
            .threads = threads_,
            .limits = limits,
            .on_too_expensive = [this](const absl::Status&) { ++too_expensive_; },
            .ahead_time = std::chrono::hours(1)};
  }
  static std::vector<uint32_t> Ahead(const TokenConstraint& constraint) {
    std::vector<uint32_t> tokens;
    for (const DraftedSet& set : constraint.Ahead()) tokens.push_back(set.token);
    return tokens;
  }
  void RunOne() {
    std::function<void()> task;
    {
      const MutexLock lock(&mutex_);
      while (tasks_.empty()) changed_.Wait(&mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }

  ConstraintMetrics metrics_;
  std::shared_ptr<MaskThreads> threads_ = std::make_shared<MaskThreads>(1);
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_;
  int told_ = 0;
  std::atomic<int> too_expensive_ = 0;
};

TEST_F(ThreadedConstraintTest, MakesTheNextSetWhileItsSessionWaits) {
  const auto made = ThreadedConstraint::Make(Letters("root ::= [ab] [cd]"), Needs({}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->Next()->bits, std::vector<uint32_t>{0b11});
  (*made)->Take(0);
  EXPECT_EQ((*made)->Next(), nullptr);
  (*made)->Ask({});
  RunOne();
  EXPECT_EQ((*made)->Next()->bits, std::vector<uint32_t>{0b1100});
  EXPECT_EQ(told_, 1);
}

// A set each, as the answer would have it token by token, and no more than the constraint admits.
TEST_F(ThreadedConstraintTest, MakesTheSetsBehindWhatIsGuessed) {
  const auto plan = Letters("root ::= [ab] [cd] [ef] [gh] [ij]");
  const auto made = ThreadedConstraint::Make(plan, Needs({}));
  const auto single = ThreadedConstraint::Make(plan, Needs({}));
  ASSERT_TRUE(made.ok() && single.ok());
  (*made)->Take(0);
  (*made)->Ask({.guesses = {2, 4, 5, 6}, .most = 4});  // "cefg": no f may follow e.
  RunOne();
  EXPECT_EQ(Ahead(**made), (std::vector<uint32_t>{2, 4}));
  for (const uint32_t token : {0u, 2u, 4u}) {
    (*single)->Take(token);
    (*single)->Ask({});
    RunOne();
    if (token != 0) (*made)->Take(token);
    ASSERT_NE((*made)->Next(), nullptr);
    EXPECT_EQ((*made)->Next()->bits, (*single)->Next()->bits);
    EXPECT_EQ((*made)->Next()->digest, (*single)->Next()->digest);
  }
  EXPECT_TRUE((*made)->Ahead().empty());
  (*made)->Take(6);
  (*made)->Ask({});
  RunOne();
  EXPECT_EQ((*made)->Next()->bits, std::vector<uint32_t>{0b1100000000});
}

TEST_F(ThreadedConstraintTest, ComesBackFromWhatWasGuessedWrongly) {
  const auto made = ThreadedConstraint::Make(Letters("root ::= ([ab] [cd])+"), Needs({}));
  ASSERT_TRUE(made.ok()) << made.status();
  uint32_t token = 0;
  for (int i = 0; i < 20; ++i) {
    // Of the guesses none, one or two are right.
    (*made)->Take(token);
    const uint32_t pair = token < 2 ? 2 : 0;
    (*made)->Ask({.guesses = {pair, 2 - pair, pair}, .most = 3});
    RunOne();
    EXPECT_EQ(Ahead(**made), (std::vector<uint32_t>{pair, 2 - pair, pair}));
    for (int right = 0; right < i % 3; ++right) {
      (*made)->Take(right == 0 ? pair : 2 - pair);
      ASSERT_NE((*made)->Next(), nullptr);
    }
    const uint32_t behind = i % 3 == 1 ? 2 - pair : pair;
    EXPECT_EQ((*made)->Next()->bits[0] & 0b1111, uint32_t{0b11} << behind);
    token = behind + 1;  // Another than was guessed.
  }
}

TEST_F(ThreadedConstraintTest, GuessesWhatItForcesAndGoesOnBehindIt) {
  const auto made = ThreadedConstraint::Make(
      Letters("root ::= [ab] \"cde\" [fg] [hi] \"jk\" [lm] [no]"), Needs({}));
  ASSERT_TRUE(made.ok()) << made.status();
  (*made)->Take(0);
  (*made)->Ask({.guesses = {9, 9}, .most = 15, .forced = true});
  RunOne();
  EXPECT_EQ(Ahead(**made), (std::vector<uint32_t>{2, 3, 4}));
  EXPECT_EQ((*made)->Ahead()[0].reason, DraftReason::kOnly);
  // What was guessed behind that, and what is forced behind what was guessed.
  (*made)->Ask({.guesses = {2, 3, 4, 5, 7}, .most = 15, .forced = true});
  EXPECT_EQ((*made)->Next(), nullptr);
  RunOne();
  EXPECT_EQ(Ahead(**made), (std::vector<uint32_t>{2, 3, 4, 5, 7, 9, 10}));
  EXPECT_EQ((*made)->Ahead()[3].reason, DraftReason::kGuess);
  EXPECT_EQ(told_, 2);
  // All of that is there: no thread is asked again.
  (*made)->Ask({.guesses = {2, 3, 4, 5, 7}, .most = 15, .forced = true});
  EXPECT_NE((*made)->Next(), nullptr);
}

// The answer is not complete behind a drafted token: what ends it is sampled.
TEST_F(ThreadedConstraintTest, DraftsNothingThatEndsTheAnswer) {
  const auto made = ThreadedConstraint::Make(Letters("root ::= \"abc\""), Needs({}));
  ASSERT_TRUE(made.ok()) << made.status();
  (*made)->Take(0);
  (*made)->Ask({.most = 15, .forced = true});
  RunOne();
  EXPECT_EQ(Ahead(**made), (std::vector<uint32_t>{1}));
}

TEST_F(ThreadedConstraintTest, MakesNoneBehindGuessesWithoutTime) {
  ThreadedConstraint::Needs needs = Needs({});
  needs.ahead_time = nanoseconds(0);
  const auto made = ThreadedConstraint::Make(Letters("root ::= [ab]+"), std::move(needs));
  ASSERT_TRUE(made.ok()) << made.status();
  (*made)->Take(0);
  (*made)->Ask({.guesses = {0, 1}, .most = 2});
  RunOne();
  EXPECT_NE((*made)->Next(), nullptr);
  EXPECT_TRUE((*made)->Ahead().empty());
}

TEST_F(ThreadedConstraintTest, FailsWhereItsSetsTakeLongerThanTheyMay) {
  const auto ambiguous = Letters("root ::= s\ns ::= s s s | s s | [a-z] | [a-z] [a-z]");
  const auto made = ThreadedConstraint::Make(
      ambiguous, Needs({.one = milliseconds(50), .all = milliseconds(200), .each = {}}));
  ASSERT_TRUE(made.ok()) << made.status();
  for (int tokens = 0; tokens < 5000 && (*made)->problem().ok(); ++tokens) {
    (*made)->Take(0);
    (*made)->Ask({});
    RunOne();
  }
  EXPECT_EQ(ReasonOf((*made)->problem()), "GRAMMAR_TOO_EXPENSIVE");
  EXPECT_EQ((*made)->Next(), nullptr);
  EXPECT_EQ(too_expensive_, 1);
}

TEST_F(ThreadedConstraintTest, MakesNoSetOnceTheThreadsHaveStopped) {
  const auto made = ThreadedConstraint::Make(Letters("root ::= [ab]+"), Needs({}));
  ASSERT_TRUE(made.ok()) << made.status();
  threads_->Stop();
  (*made)->Take(0);
  (*made)->Ask({});
  EXPECT_TRUE(tasks_.empty());
  bool told = false;
  threads_->Run([&](bool stopped) { told = stopped; });
  EXPECT_TRUE(told);
}

TEST(MaskTime, IsBoundedForOneAndForAll) {
  MaskTime one({.one = milliseconds(10), .all = milliseconds(100), .each = milliseconds(1)});
  EXPECT_TRUE(one.Add(milliseconds(10)).ok());
  EXPECT_EQ(ReasonOf(one.Add(milliseconds(11))), "GRAMMAR_TOO_EXPENSIVE");
  MaskTime all({.one = milliseconds(10), .all = milliseconds(27), .each = milliseconds(1)});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(all.Add(milliseconds(10)).ok()) << i;
  EXPECT_EQ(ReasonOf(all.Add(milliseconds(2))), "GRAMMAR_TOO_EXPENSIVE");
}

}  // namespace
}  // namespace strata
