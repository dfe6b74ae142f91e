// Which thread computes a step, and what becomes of the steps that wait.
#include "worker/service/compute_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "tests/eventually.h"
#include "tests/worker/runner/chain.h"
#include "tests/worker/runner/hash_shard.h"

namespace strata {
namespace {

using testing::HashModel;
using testing::HashShard;
using testing::kClass;
using testing::kDeployment;
using testing::kDigest;

constexpr size_t kMaxWaiting = 100;

// Time passes only where a shard says so, however busy the machine is.
class StepClock : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(now_ns_); }
  void Advance(nanoseconds time) { now_ns_ += time.count(); }

 private:
  std::atomic<int64_t> now_ns_ = 0;
};

// Says where it computes, and takes its time.
class WatchedShard : public HashShard {
 public:
  struct Seen {
    Mutex mutex;
    std::vector<std::thread::id> threads;
    std::atomic<int> delay_us = 0;
    bool kv_lost = false;
    bool waits_for_workers = false;
    StepClock clock;
  };
  WatchedShard(const StageSpec& spec, std::shared_ptr<Seen> seen)
      : HashShard(spec), seen_(std::move(seen)) {}

  absl::Status Begin(const Batch& batch) override {
    const std::chrono::microseconds delay(seen_->delay_us.load());
    std::this_thread::sleep_for(delay);
    seen_->clock.Advance(delay);
    MutexLock lock(&seen_->mutex);
    seen_->threads.push_back(std::this_thread::get_id());
    return HashShard::Begin(batch);
  }
  bool TakeKvLost() override { return std::exchange(seen_->kv_lost, false); }
  bool WaitsForWorkers() const override { return seen_->waits_for_workers; }

 private:
  const std::shared_ptr<Seen> seen_;
};

// One stage that is all of a model; the test's thread is the one that reads its link.
class ComputeQueueTest : public ::testing::Test {
 protected:
  ComputeQueueTest() { Make(); }

  void Make() {
    queue_ = nullptr;
    ShardRunnerConfig config;
    config.node = "node";
    config.deployment = kDeployment;
    config.epoch = 1;
    StageSpec& spec = config.spec;
    spec.model = HashModel(2);
    spec.last_layer = 1;
    spec.embeds = true;
    spec.heads = true;
    spec.context = 256;
    spec.kv_pages = {32};
    spec.max_batch_tokens = 64;
    spec.max_batch_items = 8;
    config.weights_digest = kDigest;
    config.numerics_class = kClass;
    auto shard = std::make_unique<WatchedShard>(spec, seen_);
    shard_ = shard.get();
    queue_ = std::make_unique<ComputeQueue>(
        std::move(config), kMaxWaiting, std::move(shard), &seen_->clock, &compute_,
        [this](const ComputeQueue::Frame& frame) { OnDone(frame); });
  }

  // One token of a sequence of its own.
  bool Add() {
    ComputeQueue::Frame frame;
    frame.message.received_bytes = 1000;
    v1::StepFrame& header = frame.message.header;
    header.set_deployment(kDeployment);
    header.set_epoch(1);
    header.set_step(++step_);
    header.set_committed_step(step_ - 1);
    header.set_rows(1);
    if (step_ > 1) {
      *header.add_commands() = testing::Release(testing::Name("r", step_ - 1));
    }
    const std::vector<uint32_t> ids = {3};
    *header.add_items() = testing::Item(testing::Name("r", step_), ids, 0, 1);
    return queue_->Add(std::move(frame));
  }

  bool WaitDone(size_t count) {
    const auto end = std::chrono::steady_clock::now() + kGiveUpAfter;
    MutexLock lock(&mutex_);
    while (done_.size() < count && std::chrono::steady_clock::now() < end) {
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(20));
    }
    return done_.size() >= count;
  }
  // The steps that were computed.
  std::vector<uint64_t> done() {
    MutexLock lock(&mutex_);
    return done_;
  }

  // What the stage said of them.
  std::vector<v1::StageKv> said() {
    MutexLock lock(&mutex_);
    return said_;
  }

  // Whether the test's own thread computed the last step.
  bool Here() {
    MutexLock lock(&seen_->mutex);
    return seen_->threads.back() == std::this_thread::get_id();
  }

 private:
  void OnDone(const ComputeQueue::Frame& frame) {
    MutexLock lock(&mutex_);
    if (frame.output.ok()) {
      done_.push_back(frame.step);
      if (const auto* result = std::get_if<ResultMessage>(&*frame.output)) {
        said_.push_back(result->header.stages(0));
      }
    }
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> done_;
  std::vector<v1::StageKv> said_;
  uint64_t step_ = 0;

 protected:
  Mutex compute_;
  const std::shared_ptr<WatchedShard::Seen> seen_ = std::make_shared<WatchedShard::Seen>();
  const Shard* shard_ = nullptr;
  std::unique_ptr<ComputeQueue> queue_;
};

TEST_F(ComputeQueueTest, OnceStepsAreKnownToBeShortTheReaderComputesThem) {
  Add();  // Nothing is known yet.
  ASSERT_TRUE(WaitDone(1));
  EXPECT_FALSE(Here());
  // As soon as the one that computed before waits again.
  bool here = false;
  for (int i = 2; !here && i <= 20'000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // As if it came over a link.
    Add();
    ASSERT_TRUE(WaitDone(i));
    here = Here();
  }
  EXPECT_TRUE(here);
}

TEST_F(ComputeQueueTest, ShortStepsThatMayWaitForAnotherWorkerNeverHoldTheReaderUp) {
  seen_->waits_for_workers = true;
  Make();
  for (int i = 1; i <= 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // As if it came over a link.
    Add();
    ASSERT_TRUE(WaitDone(i));
    ASSERT_FALSE(Here());
  }
}

TEST_F(ComputeQueueTest, SequencesWhoseKvIsLostAreDroppedByTheFence) {
  Add();
  ASSERT_TRUE(WaitDone(1));
  ASSERT_TRUE(queue_->Fence(2).ok());
  EXPECT_EQ(queue_->stats().sequences, 1u);
  EXPECT_EQ(queue_->stats().free_pages, std::vector<uint64_t>{31});
  seen_->kv_lost = true;
  ASSERT_TRUE(queue_->Fence(3).ok());
  EXPECT_EQ(queue_->stats().sequences, 0u);
  EXPECT_EQ(queue_->stats().free_pages, std::vector<uint64_t>{32});
}

TEST_F(ComputeQueueTest, LongStepsNeverHoldTheReaderUp) {
  seen_->delay_us = 3000;
  for (int i = 1; i <= 10; ++i) {
    Add();
    ASSERT_TRUE(WaitDone(i));
    EXPECT_FALSE(Here());
  }
}

TEST_F(ComputeQueueTest, AStepIsToldWithWhatItWaitedComputedAndWeighed) {
  seen_->delay_us = 3000;
  {
    MutexLock other(&compute_);
    Add();
    Add();
    seen_->clock.Advance(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(WaitDone(2));
  const auto said = this->said();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NEAR(said[0].wait_ms(), 20, 1e-6);
  EXPECT_NEAR(said[1].wait_ms(), 23, 1e-6);  // The first one's computing too.
  EXPECT_NEAR(said[1].compute_ms(), 3, 1e-6);
  EXPECT_EQ(said[1].received_bytes(), 1000u);
  const StageWork work = queue_->work();
  EXPECT_EQ(work.steps, 2u);
  EXPECT_EQ(work.rows, 2u);
  EXPECT_EQ(work.computed, std::chrono::milliseconds(6));
  EXPECT_EQ(work.waited, std::chrono::milliseconds(43));
  EXPECT_EQ(work.received_bytes, 2000u);
  EXPECT_EQ(work.step_time.total, 2u);
  const RunnerStats stats = queue_->stats();
  EXPECT_EQ(stats.total_pages, std::vector<uint64_t>{32});
  EXPECT_EQ(stats.free_pages, std::vector<uint64_t>{31});
}

TEST_F(ComputeQueueTest, WhileAnotherStageComputesTheReaderDoesNotWait) {
  for (int i = 1; i <= 20; ++i) {
    Add();
    ASSERT_TRUE(WaitDone(i));
  }
  {
    MutexLock other(&compute_);
    Add();
    Add();
    EXPECT_EQ(done().size(), 20u);
  }
  ASSERT_TRUE(WaitDone(22));
  EXPECT_FALSE(Here());
}

TEST_F(ComputeQueueTest, StepsKeepTheirOrderWhoeverComputesThem) {
  constexpr int kSteps = 600;
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      {
        MutexLock lock(&compute_);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  for (int i = 1; i <= kSteps; ++i) {
    EXPECT_TRUE(Add());
    if (i > 20) {
      ASSERT_TRUE(WaitDone(i - 20));
    }
  }
  ASSERT_TRUE(WaitDone(kSteps));
  stop = true;
  other.join();
  const std::vector<uint64_t> steps = done();
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(steps[i], static_cast<uint64_t>(i) + 1);
  }
}

TEST_F(ComputeQueueTest, FramesBeyondTheLimitAreRefusedUntilThoseThatWaitAreDropped) {
  MutexLock other(&compute_);
  size_t taken = 0;
  while (taken <= kMaxWaiting + 1 && Add()) {
    ++taken;
  }
  // One more than that if the queue's thread has a frame in hand already.
  EXPECT_GE(taken, kMaxWaiting);
  EXPECT_LE(taken, kMaxWaiting + 1);
  queue_->Clear();
  EXPECT_TRUE(Add());
}

TEST_F(ComputeQueueTest, StopDropsWhatWaitsAndGivesTheShardBackOnce) {
  constexpr size_t kFrames = 50;
  seen_->delay_us = 20000;
  for (size_t i = 0; i < kFrames; ++i) {
    EXPECT_TRUE(Add());
  }
  const std::unique_ptr<Shard> shard = queue_->Stop();
  EXPECT_EQ(shard.get(), shard_);
  const size_t done_at_stop = done().size();
  EXPECT_LT(done_at_stop, kFrames);
  EXPECT_EQ(queue_->stats().frames_computed, done_at_stop);
  EXPECT_FALSE(Add());
  EXPECT_EQ(queue_->Stop(), nullptr);
  EXPECT_EQ(done().size(), done_at_stop);
}

}  // namespace
}  // namespace strata
