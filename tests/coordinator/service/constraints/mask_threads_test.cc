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
            .on_too_expensive = [this](const absl::Status&) { ++too_expensive_; }};
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
  RunOne();
  EXPECT_EQ((*made)->Next()->bits, std::vector<uint32_t>{0b1100});
  EXPECT_EQ(told_, 1);
}

TEST_F(ThreadedConstraintTest, FailsWhereItsSetsTakeLongerThanTheyMay) {
  const auto ambiguous = Letters("root ::= s\ns ::= s s s | s s | [a-z] | [a-z] [a-z]");
  const auto made = ThreadedConstraint::Make(
      ambiguous, Needs({.one = milliseconds(50), .all = milliseconds(200), .each = {}}));
  ASSERT_TRUE(made.ok()) << made.status();
  for (int tokens = 0; tokens < 5000 && (*made)->problem().ok(); ++tokens) {
    (*made)->Take(0);
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
