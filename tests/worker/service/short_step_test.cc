// Which thread computes a step.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/worker/runner/chain.h"
#include "tests/worker/runner/hash_shard.h"
#include "tests/worker/service/local_links.h"
#include "worker/service/shard_host.h"

namespace strata {
namespace {

using std::chrono::seconds;
using testing::HashModel;
using testing::HashShard;
using testing::kClass;
using testing::kDeployment;
using testing::kDigest;
using testing::LocalDialer;

// Says where it computes, and takes its time.
class WatchedShard : public HashShard {
 public:
  struct Seen {
    Mutex mutex;
    std::vector<std::thread::id> threads;
    std::atomic<int> delay_us = 0;
  };
  WatchedShard(const StageSpec& spec, std::shared_ptr<Seen> seen)
      : HashShard(spec), seen_(std::move(seen)) {}

  absl::Status Begin(const Batch& batch) override {
    std::this_thread::sleep_for(std::chrono::microseconds(seen_->delay_us.load()));
    MutexLock lock(&seen_->mutex);
    seen_->threads.push_back(std::this_thread::get_id());
    return HashShard::Begin(batch);
  }

 private:
  const std::shared_ptr<Seen> seen_;
};

// Hears what the stage says.
class Listener : public ShardHostEvents, public LinkSink {
 public:
  void OnFenceAck(const v1::FenceAck& ack) override {
    MutexLock lock(&mutex_);
    fenced_ = ack.epoch();
    changed_.NotifyAll();
  }
  void OnLinkFault(const v1::LinkFault& fault) override {
    ADD_FAILURE() << fault.ShortDebugString();
  }
  absl::Status OnResult(ResultMessage message) override {
    MutexLock lock(&mutex_);
    steps_.push_back(message.header.step());
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status&) override {}

  bool WaitFenced(uint64_t epoch) {
    return Wait([&] { return fenced_ == epoch; });
  }
  bool WaitSteps(size_t count) {
    return Wait([&] { return steps_.size() >= count; });
  }
  std::vector<uint64_t> steps() {
    MutexLock lock(&mutex_);
    return steps_;
  }

 private:
  bool Wait(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    MutexLock lock(&mutex_);
    while (!done() && std::chrono::steady_clock::now() < end) {
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(20));
    }
    return done();
  }

  Mutex mutex_;
  CondVar changed_;
  uint64_t fenced_ = 0;
  std::vector<uint64_t> steps_;
};

class NoInbound : public InboundLink {
 public:
  void Break(const absl::Status& status) override {
    EXPECT_EQ(ReasonOf(status), "UNLOADED") << status;
  }
};

// One stage that is all of a model; the test's thread is the one that reads its link.
class ShortStepTest : public ::testing::Test {
 protected:
  ShortStepTest() {
    ShardHostConfig config;
    config.runner.node = "node";
    config.runner.deployment = kDeployment;
    config.runner.epoch = 1;
    StageSpec& spec = config.runner.spec;
    spec.model = HashModel(2);
    spec.last_layer = 1;
    spec.embeds = true;
    spec.heads = true;
    spec.context = 256;
    spec.kv_pages = {32};
    spec.max_batch_tokens = 64;
    spec.max_batch_items = 8;
    config.runner.weights_digest = kDigest;
    config.runner.numerics_class = kClass;
    config.max_in_flight = 100;
    config.next_address = "coordinator";
    const StageSpec shard_spec = spec;
    dialer_.Listen("coordinator",
                   [this](const v1::LinkOpen&, const std::shared_ptr<InboundLink>&)
                       -> absl::StatusOr<std::shared_ptr<LinkSink>> { return listener_; });
    host_ = std::make_unique<ShardHost>(config, std::make_unique<WatchedShard>(shard_spec, seen_),
                                        &clock_, &compute_, &dialer_, listener_);
    host_->Fence(1);
    EXPECT_TRUE(listener_->WaitFenced(1));
    v1::LinkOpen open;
    open.set_deployment(kDeployment);
    open.set_epoch(1);
    auto sink = host_->AcceptLink(open, std::make_shared<NoInbound>());
    EXPECT_TRUE(sink.ok()) << sink.status();
    sink_ = *std::move(sink);
  }
  ~ShortStepTest() override {
    host_->Stop();
    sink_ = nullptr;
  }

  // One token of a sequence of its own.
  void Send() {
    StepMessage frame;
    frame.header.set_deployment(kDeployment);
    frame.header.set_epoch(1);
    frame.header.set_step(++step_);
    frame.header.set_committed_step(step_ - 1);
    frame.header.set_rows(1);
    if (step_ > 1) {
      *frame.header.add_commands() = testing::Release(testing::Name("r", step_ - 1));
    }
    const std::vector<uint32_t> ids = {3};
    *frame.header.add_items() = testing::Item(testing::Name("r", step_), ids, 0, 1);
    const absl::Status status = sink_->OnStep(std::move(frame));
    EXPECT_TRUE(status.ok()) << status;
  }

  // Whether the test's own thread computed the last step.
  bool Here() {
    MutexLock lock(&seen_->mutex);
    return seen_->threads.back() == std::this_thread::get_id();
  }

  const SystemClock clock_;
  Mutex compute_;
  LocalDialer dialer_;
  const std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  const std::shared_ptr<WatchedShard::Seen> seen_ = std::make_shared<WatchedShard::Seen>();
  std::unique_ptr<ShardHost> host_;
  std::shared_ptr<LinkSink> sink_;
  uint64_t step_ = 0;
};

TEST_F(ShortStepTest, OnceStepsAreKnownToBeShortTheReaderComputesThem) {
  Send();  // Nothing is known yet.
  ASSERT_TRUE(listener_->WaitSteps(1));
  EXPECT_FALSE(Here());
  int here = 0;
  for (int i = 2; i <= 100; ++i) {  // A busy machine may make some look long.
    Send();
    ASSERT_TRUE(listener_->WaitSteps(i));
    here += Here() ? 1 : 0;
  }
  EXPECT_GT(here, 0);
}

TEST_F(ShortStepTest, LongStepsNeverHoldTheReaderUp) {
  seen_->delay_us = 3000;
  for (int i = 1; i <= 10; ++i) {
    Send();
    ASSERT_TRUE(listener_->WaitSteps(i));
    EXPECT_FALSE(Here());
  }
}

TEST_F(ShortStepTest, WhileAnotherStageComputesTheReaderDoesNotWait) {
  for (int i = 1; i <= 20; ++i) {
    Send();
    ASSERT_TRUE(listener_->WaitSteps(i));
  }
  {
    MutexLock other(&compute_);
    Send();
    Send();
    EXPECT_EQ(listener_->steps().size(), 20u);
  }
  ASSERT_TRUE(listener_->WaitSteps(22));
  EXPECT_FALSE(Here());
}

TEST_F(ShortStepTest, StepsKeepTheirOrderWhoeverComputesThem) {
  constexpr int kSteps = 600;
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) {
      {
        MutexLock lock(&compute_);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  for (int i = 1; i <= kSteps; ++i) {
    Send();
    if (i > 20) {
      ASSERT_TRUE(listener_->WaitSteps(i - 20));
    }
  }
  ASSERT_TRUE(listener_->WaitSteps(kSteps));
  done = true;
  other.join();
  const std::vector<uint64_t> steps = listener_->steps();
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(steps[i], static_cast<uint64_t>(i) + 1);
  }
}

}  // namespace
}  // namespace strata
