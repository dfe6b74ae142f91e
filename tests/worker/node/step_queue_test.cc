#include "worker/node/step_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace strata {
namespace {

// Steps can be moved only.
using Step = std::unique_ptr<int>;
using Queue = StepQueue<Step>;

Queue::Added Add(Queue* queue, int number, bool may_begin = false) {
  Step step = std::make_unique<int>(number);
  const Queue::Added added = queue->Add(&step, may_begin);
  EXPECT_EQ(step == nullptr, added == Queue::Added::kWaits);
  return added;
}

// What Next gives until nothing waits.
std::vector<int> Rest(Queue* queue) {
  std::vector<int> rest;
  while (std::optional<Step> step = queue->Next()) {
    rest.push_back(**step);
    queue->Done();
  }
  return rest;
}

TEST(StepQueueTest, StepsAreAtHandOneAfterAnotherInTheOrderInWhichTheyCame) {
  Queue queue(10);
  for (int number : {1, 2, 3}) {
    EXPECT_EQ(Add(&queue, number), Queue::Added::kWaits);
  }
  EXPECT_EQ(**queue.Next(), 1);
  EXPECT_FALSE(queue.Next().has_value());
  EXPECT_FALSE(queue.ready());
  queue.Done();
  EXPECT_EQ(Rest(&queue), (std::vector<int>{2, 3}));
}

TEST(StepQueueTest, WhoBringsAStepMayBeginItOnlyWhereNoneIsAtHandOrWaits) {
  Queue queue(10);
  EXPECT_EQ(Add(&queue, 1, true), Queue::Added::kAtHand);
  EXPECT_EQ(Add(&queue, 2, true), Queue::Added::kWaits);
  queue.Done();
  EXPECT_EQ(Add(&queue, 3, true), Queue::Added::kWaits);
  EXPECT_EQ(Rest(&queue), (std::vector<int>{2, 3}));
  EXPECT_EQ(Add(&queue, 4, true), Queue::Added::kAtHand);
}

TEST(StepQueueTest, AStepThatCouldNotBeginIsNext) {
  Queue queue(10);
  EXPECT_EQ(Add(&queue, 1, true), Queue::Added::kAtHand);
  EXPECT_EQ(Add(&queue, 2), Queue::Added::kWaits);
  queue.Return(std::make_unique<int>(1));
  EXPECT_EQ(Rest(&queue), (std::vector<int>{1, 2}));
}

TEST(StepQueueTest, AStepMoreThanMayWaitIsRefused) {
  Queue queue(2);
  EXPECT_EQ(Add(&queue, 1), Queue::Added::kWaits);
  EXPECT_EQ(**queue.Next(), 1);  // Does not wait any more.
  EXPECT_EQ(Add(&queue, 2), Queue::Added::kWaits);
  EXPECT_EQ(Add(&queue, 3), Queue::Added::kWaits);
  EXPECT_EQ(Add(&queue, 4), Queue::Added::kRefused);
  EXPECT_EQ(queue.waiting(), 2);
}

TEST(StepQueueTest, NothingIsTakenOrGivenAfterStop) {
  Queue queue(10);
  EXPECT_EQ(Add(&queue, 1, true), Queue::Added::kAtHand);
  EXPECT_EQ(Add(&queue, 2), Queue::Added::kWaits);
  queue.Stop();
  EXPECT_TRUE(queue.at_hand());
  EXPECT_EQ(Add(&queue, 3, true), Queue::Added::kRefused);
  queue.Return(std::make_unique<int>(1));
  EXPECT_FALSE(queue.at_hand());
  EXPECT_FALSE(queue.Next().has_value());
}

TEST(StepQueueTest, ClearDropsWhatWaitsAndNotWhatIsAtHand) {
  Queue queue(10);
  EXPECT_EQ(Add(&queue, 1, true), Queue::Added::kAtHand);
  EXPECT_EQ(Add(&queue, 2), Queue::Added::kWaits);
  queue.Clear();
  EXPECT_TRUE(queue.at_hand());
  EXPECT_EQ(queue.waiting(), 0);
  queue.Done();
  EXPECT_EQ(Add(&queue, 3, true), Queue::Added::kAtHand);
}

}  // namespace
}  // namespace strata
