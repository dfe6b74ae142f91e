#include "worker/service/shard_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "tests/eventually.h"
#include "tests/worker/runner/chain.h"
#include "tests/worker/service/local_links.h"

namespace strata {
namespace {

using testing::HashLogits;
using testing::HashModel;
using testing::HashShard;
using testing::kClass;
using testing::kDeployment;
using testing::kDigest;
using testing::kEpoch;
using testing::LocalDialer;

constexpr uint32_t kStages = 3;

// Collects what hosts and the last stage say.
class Coordinator : public LinkSink {
 public:
  absl::Status OnResult(ResultMessage message) override {
    Change([&] { results.push_back(std::move(message)); });
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status&) override {}
  void Change(const std::function<void()>& change) {
    MutexLock lock(&mutex);
    change();
    changed.NotifyAll();
  }
  bool Wait(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kGiveUpAfter;
    MutexLock lock(&mutex);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      changed.WaitFor(&mutex, milliseconds(10));
    }
    return true;
  }

  Mutex mutex;
  CondVar changed;
  std::vector<ResultMessage> results;
  std::vector<v1::FenceAck> acks;
  std::vector<v1::LinkFault> faults;
  int hangs = 0;
};

class Events : public ShardHostEvents {
 public:
  explicit Events(std::shared_ptr<Coordinator> coordinator)
      : coordinator_(std::move(coordinator)) {}
  void OnFenceAck(const v1::FenceAck& ack) override {
    coordinator_->Change([&] { coordinator_->acks.push_back(ack); });
  }
  void OnLinkFault(const v1::LinkFault& fault) override {
    coordinator_->Change([&] { coordinator_->faults.push_back(fault); });
  }
  void OnStepHangs() override {
    coordinator_->Change([&] { ++coordinator_->hangs; });
  }

 private:
  const std::shared_ptr<Coordinator> coordinator_;
};

// Computes nothing while somebody holds the gate; counts who came to it.
struct Gate {
  Mutex mutex;
  std::atomic<int> came{0};
  std::atomic<bool> holds_up{false};  // As another worker does.
};
class GatedShard : public HashShard {
 public:
  GatedShard(const StageSpec& spec, Gate* gate) : HashShard(spec), gate_(gate) {}
  absl::Status Begin(const Batch& batch) override {
    ++gate_->came;
    MutexLock lock(&gate_->mutex);
    return HashShard::Begin(batch);
  }
  bool IsHeldUp() const override { return gate_->holds_up; }

 private:
  Gate* const gate_;
};

class ShardHostTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(kGiveUpAfter); }
  void TearDown() override {
    first_link_ = nullptr;
    for (auto& host : hosts_) {
      host->Stop();
    }
  }

  void Start(milliseconds step_timeout) {
    for (auto& host : hosts_) {
      host->Stop();
    }
    hosts_.clear();
    coordinator_ = std::make_shared<Coordinator>();
    for (uint32_t s = 0; s < kStages; ++s) {
      hosts_.push_back(NewHost(s, "node" + std::to_string(s), step_timeout));
    }
    dialer_.Listen(
        "coordinator",
        [this](const v1::LinkOpen&,
               std::shared_ptr<InboundLink> link) -> absl::StatusOr<std::shared_ptr<LinkSink>> {
          results_link_ = link;
          return coordinator_;
        });
  }

  std::unique_ptr<ShardHost> NewHost(uint32_t s, const std::string& node,
                                     milliseconds step_timeout) {
    ShardHostConfig config;
    config.runner.node = node;
    config.runner.deployment = kDeployment;
    config.runner.epoch = kEpoch;
    config.runner.stage = s;
    config.runner.stage_count = kStages;
    StageSpec& spec = config.runner.spec;
    spec.model = HashModel(2 * kStages);
    spec.first_layer = 2 * s;
    spec.last_layer = 2 * s + 1;
    spec.embeds = s == 0;
    spec.heads = s + 1 == kStages;
    spec.context = 256;
    spec.kv_pages = {32};
    spec.max_batch_tokens = 64;
    spec.max_batch_items = 8;
    config.runner.weights_digest = kDigest;
    config.runner.numerics_class = kClass;
    config.max_in_flight = kStages + 1;
    config.next_node = spec.heads ? "" : "node" + std::to_string(s + 1);
    config.next_address = spec.heads ? "coordinator" : config.next_node;
    config.step_timeout = step_timeout;
    const StageSpec shard_spec = spec;
    auto host = std::make_unique<ShardHost>(
        config, std::make_unique<GatedShard>(shard_spec, &gate_), &clock_, &compute_, &dialer_,
        std::make_shared<Events>(coordinator_));
    dialer_.Listen(
        node, [host = host.get()](const v1::LinkOpen& open, std::shared_ptr<InboundLink> link) {
          return host->AcceptLink(open, std::move(link));
        });
    dialer_.GiveKv(node, [host = host.get()](const v1::CarryKvRequest& request, bool begins) {
      return host->GiveKv(request, begins);
    });
    return host;
  }

  v1::LinkOpen OpenTo(uint32_t stage, uint64_t epoch) {
    v1::LinkOpen open;
    open.set_from_node(stage == 0 ? "" : "node" + std::to_string(stage - 1));
    open.set_deployment(kDeployment);
    open.set_epoch(epoch);
    open.set_to_stage(stage);
    return open;
  }

  // Opens all links for the epoch, beside those in use.
  std::unique_ptr<FrameLink> BeginAhead(uint64_t epoch) {
    coordinator_->Change([&] { coordinator_->acks.clear(); });
    for (uint32_t i = kStages; i-- > 0;) {
      hosts_[i]->OpenAhead(epoch);
    }
    EXPECT_TRUE(coordinator_->Wait([&] { return coordinator_->acks.size() == kStages; }));
    for (const v1::FenceAck& ack : coordinator_->acks) {
      EXPECT_FALSE(ack.has_error()) << ack.error().message();
      EXPECT_TRUE(ack.ahead());
      EXPECT_EQ(ack.epoch(), epoch);
    }
    auto link = dialer_.Dial("node0", OpenTo(0, epoch), kStages + 1, kGiveUpAfter,
                             [](const absl::Status&) {});
    EXPECT_TRUE(link.ok()) << link.status();
    return link.ok() ? *std::move(link) : nullptr;
  }

  // Fences all stages, the last ones first or last, and opens the coordinator's link.
  bool Begin(uint64_t epoch, bool backwards = true) {
    first_link_ = nullptr;
    coordinator_->Change([&] { coordinator_->acks.clear(); });
    for (uint32_t i = 0; i < kStages; ++i) {
      hosts_[backwards ? kStages - 1 - i : i]->Fence(epoch);
    }
    if (!coordinator_->Wait([&] { return coordinator_->acks.size() == kStages; })) {
      return false;
    }
    for (const v1::FenceAck& ack : coordinator_->acks) {
      EXPECT_FALSE(ack.has_error()) << ack.error().message();
      EXPECT_EQ(ack.epoch(), epoch);
    }
    auto link = dialer_.Dial("node0", OpenTo(0, epoch), kStages + 1, kGiveUpAfter,
                             [](const absl::Status&) {});
    EXPECT_TRUE(link.ok()) << link.status();
    first_link_ = link.ok() ? *std::move(link) : nullptr;
    return link.ok();
  }

  StepMessage Frame(uint64_t epoch, uint64_t step, std::vector<v1::StepItem> items,
                    bool resync = false) {
    StepMessage frame;
    frame.header.set_deployment(kDeployment);
    frame.header.set_epoch(epoch);
    frame.header.set_step(step);
    frame.header.set_committed_step(step - 1);
    frame.header.set_resync(resync);
    uint32_t rows = 0;
    for (v1::StepItem& item : items) {
      rows += static_cast<uint32_t>(item.token_ids_size());
      *frame.header.add_items() = std::move(item);
    }
    frame.header.set_rows(rows);
    return frame;
  }

  // Sends a step and gives its result.
  absl::StatusOr<ResultMessage> Step(StepMessage frame) {
    const size_t before = Results();
    RETURN_IF_ERROR(first_link_->Send(std::move(frame)));
    if (!coordinator_->Wait([&] { return coordinator_->results.size() > before; })) {
      return absl::DeadlineExceededError("no result");
    }
    MutexLock lock(&coordinator_->mutex);
    return coordinator_->results.back();
  }

  size_t Results() {
    MutexLock lock(&coordinator_->mutex);
    return coordinator_->results.size();
  }

  static uint32_t Argmax(const std::vector<float>& logits) {
    return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

  // Generates greedily from `ids` on, one step after another.
  void Generate(std::vector<uint32_t>* ids, const v1::SequenceName& name, uint64_t epoch,
                uint64_t* step, int count) {
    uint32_t done = 0;
    for (int i = 0; i < count; ++i) {
      auto result = Step(Frame(
          epoch, ++*step, {testing::Item(name, *ids, done, static_cast<uint32_t>(ids->size()))}));
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->header.items_size(), 1);
      ASSERT_FALSE(result->header.items(0).has_error()) << result->header.DebugString();
      done = static_cast<uint32_t>(ids->size());
      ids->push_back(result->header.items(0).tokens(0).token_id());
    }
  }

  void ExpectOracle(const std::vector<uint32_t>& ids, size_t prompt) {
    const auto logits = HashLogits(HashModel(2 * kStages), ids);
    for (size_t i = prompt; i < ids.size(); ++i) {
      EXPECT_EQ(ids[i], Argmax(logits[i - 1])) << i;
    }
  }

  SystemClock clock_;
  Mutex compute_;
  Gate gate_;
  std::shared_ptr<Coordinator> coordinator_;
  std::shared_ptr<InboundLink> results_link_;
  LocalDialer dialer_;
  std::vector<std::unique_ptr<ShardHost>> hosts_;
  std::unique_ptr<FrameLink> first_link_;
};

TEST_F(ShardHostTest, StepsFlowOnWhileLinksAreOpenedAheadAndOverThoseOnceTheyAreFenced) {
  ASSERT_TRUE(Begin(kEpoch));
  std::vector<uint32_t> ids = {5, 4, 3, 2, 1, 9, 8};
  uint64_t step = 0;
  Generate(&ids, testing::Name("a", 1), kEpoch, &step, 5);
  std::unique_ptr<FrameLink> ahead = BeginAhead(kEpoch + 2);
  ASSERT_NE(ahead, nullptr);
  const size_t prompt = 7;
  std::vector<uint32_t> more = {1, 2, 3};
  Generate(&more, testing::Name("b", 2), kEpoch, &step, 5);
  ExpectOracle(ids, prompt);
  ExpectOracle(more, 3);
  const int dials = dialer_.dials();
  coordinator_->Change([&] { coordinator_->acks.clear(); });
  first_link_ = nullptr;
  for (const auto& host : hosts_) {
    host->Fence(kEpoch + 2);
  }
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->acks.size() == kStages; }));
  EXPECT_EQ(dialer_.dials(), dials) << "all are open";
  first_link_ = std::move(ahead);
  auto resync = Step(Frame(kEpoch + 2, 1, {}, /*resync=*/true));
  ASSERT_TRUE(resync.ok()) << resync.status();
  std::vector<uint32_t> again = {5, 4, 3};
  step = 1;
  Generate(&again, testing::Name("a", 3), kEpoch + 2, &step, 5);
  ExpectOracle(again, 3);
}

TEST_F(ShardHostTest, AStageThatTakesAnothersPlaceGoesOnWithItsKv) {
  ASSERT_TRUE(Begin(kEpoch));
  std::vector<uint32_t> ids = testing::Prompt(40, 1);
  uint64_t step = 0;
  Generate(&ids, testing::Name("a", 1), kEpoch, &step, 5);
  hosts_.push_back(NewHost(1, "other", kGiveUpAfter));
  coordinator_->Change([&] { coordinator_->acks.clear(); });
  v1::KvSource from;
  from.mutable_worker()->set_node("node1");
  from.mutable_worker()->set_address("node1");
  v1::NextHop other;
  other.set_node("other");
  other.set_address("other");
  hosts_[2]->OpenAhead(kEpoch + 2);
  hosts_[3]->OpenAhead(kEpoch + 2, nullptr, &from);
  hosts_[0]->OpenAhead(kEpoch + 2, &other);
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->acks.size() == 3; }));
  EXPECT_EQ(std::count_if(coordinator_->acks.begin(), coordinator_->acks.end(),
                          [](const v1::FenceAck& ack) { return ack.carried(); }),
            1);
  const std::vector<uint32_t> computed(ids.begin(), ids.end() - 1);
  std::vector<uint32_t> late = testing::Prompt(20, 2);  // After the pages went over.
  Generate(&late, testing::Name("b", 2), kEpoch, &step, 2);
  coordinator_->Change([&] { coordinator_->acks.clear(); });
  hosts_[0]->Fence(kEpoch + 2, &other);
  hosts_[3]->Fence(kEpoch + 2);
  hosts_[2]->Fence(kEpoch + 2);
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->acks.size() == 3; }));
  hosts_[1]->Stop();
  EXPECT_EQ(ReasonOf(hosts_[1]->GiveKv({}, true).status()), "UNLOADED");
  auto link = dialer_.Dial("node0", OpenTo(0, kEpoch + 2), kStages + 1, kGiveUpAfter,
                           [](const absl::Status&) {});
  ASSERT_TRUE(link.ok()) << link.status();
  first_link_ = *std::move(link);
  StepMessage resync = Frame(kEpoch + 2, 1, {}, /*resync=*/true);
  const std::vector<uint32_t> late_computed(late.begin(), late.end() - 1);
  *resync.header.add_commands() = testing::Truncate(testing::Name("a", 1), computed);
  *resync.header.add_commands() = testing::Truncate(testing::Name("b", 2), late_computed);
  auto result = Step(std::move(resync));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->header.commands(0).has_error()) << result->header.DebugString();
  EXPECT_FALSE(result->header.commands(1).has_error()) << result->header.DebugString();
  const auto length = static_cast<uint32_t>(ids.size());
  result =
      Step(Frame(kEpoch + 2, 2, {testing::Item(testing::Name("a", 1), ids, length - 1, length)}));
  ASSERT_TRUE(result.ok()) << result.status();
  ids.push_back(result->header.items(0).tokens(0).token_id());
  ExpectOracle(ids, 40);
}

TEST_F(ShardHostTest, AFrameOnALinkThatWasOpenedAheadBreaksItBeforeItsFence) {
  ASSERT_TRUE(Begin(kEpoch));
  std::unique_ptr<FrameLink> ahead = BeginAhead(kEpoch + 1);
  ASSERT_NE(ahead, nullptr);
  ASSERT_TRUE(ahead->Send(Frame(kEpoch + 1, 1, {}, /*resync=*/true)).ok());
  EXPECT_TRUE(coordinator_->Wait(
      [&] { return !ahead->Send(Frame(kEpoch + 1, 1, {}, /*resync=*/true)).ok(); }));
  std::vector<uint32_t> ids = {5, 4, 3};
  uint64_t step = 0;
  Generate(&ids, testing::Name("a", 1), kEpoch, &step, 5);
  ExpectOracle(ids, 3);
  EXPECT_EQ(Results(), 5u) << "of no other epoch";
}

TEST_F(ShardHostTest, StepsFlowThroughTheStagesAndGiveTheOraclesTokens) {
  for (const bool backwards : {true, false}) {
    Start(kGiveUpAfter);
    ASSERT_TRUE(Begin(kEpoch, backwards));
    std::vector<uint32_t> ids = {5, 4, 3, 2, 1, 9, 8};
    uint64_t step = 0;
    Generate(&ids, testing::Name("a", 1), kEpoch, &step, 30);
    ExpectOracle(ids, 7);
    EXPECT_EQ(hosts_[1]->stats().frames_computed, 30u);
    EXPECT_EQ(hosts_[1]->stats().sequences, 1u);
    EXPECT_TRUE(coordinator_->faults.empty());
  }
}

TEST_F(ShardHostTest, ManyStepsInFlightKeepTheirOrder) {
  ASSERT_TRUE(Begin(kEpoch));
  // kStages + 1 sequences, each a step of its own.
  for (uint64_t s = 1; s <= 40; ++s) {
    ASSERT_TRUE(
        coordinator_->Wait([&] { return coordinator_->results.size() + kStages + 1 >= s; }));
    const std::vector<uint32_t> ids = {static_cast<uint32_t>(s), 7, 11};
    ASSERT_TRUE(
        first_link_->Send(Frame(kEpoch, s, {testing::Item(testing::Name("r", s), ids, 0, 3)}))
            .ok());
  }
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->results.size() == 40; }));
  for (uint64_t s = 1; s <= 40; ++s) {
    EXPECT_EQ(coordinator_->results[s - 1].header.step(), s);
  }
}

TEST_F(ShardHostTest, AFenceEndsTheOldLinksAndANewEpochGoesOnWhereItWasCommitted) {
  ASSERT_TRUE(Begin(kEpoch));
  std::vector<uint32_t> ids = {1, 2, 3};
  uint64_t step = 0;
  Generate(&ids, testing::Name("a", 1), kEpoch, &step, 5);
  auto old = std::move(first_link_);
  ASSERT_TRUE(Begin(kEpoch + 1));
  // A frame of the old epoch comes late: its link is gone.
  EXPECT_TRUE(coordinator_->Wait([&] { return !old->Send(Frame(kEpoch, 6, {})).ok(); }));
  // Everything but the last sampled token is computed; resynchronize at half of it.
  const std::vector<uint32_t> prefix(ids.begin(), ids.begin() + 4);
  StepMessage resync = Frame(kEpoch + 1, 1, {}, true);
  *resync.header.add_commands() = testing::Truncate(testing::Name("a", 1), prefix);
  auto result = Step(std::move(resync));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->header.commands(0).has_error()) << result->header.DebugString();
  result = Step(
      Frame(kEpoch + 1, 2,
            {testing::Item(testing::Name("a", 1), ids, 4, static_cast<uint32_t>(ids.size()))}));
  ASSERT_TRUE(result.ok()) << result.status();
  ids.push_back(result->header.items(0).tokens(0).token_id());
  ExpectOracle(ids, 3);
  // Who heard of the fence late may have seen a neighbour end the old link.
  MutexLock lock(&coordinator_->mutex);
  for (const v1::LinkFault& fault : coordinator_->faults) {
    EXPECT_EQ(fault.epoch(), kEpoch);
  }
}

TEST_F(ShardHostTest, TheSameFenceAgainChangesNothing) {
  ASSERT_TRUE(Begin(kEpoch));
  auto link = std::move(first_link_);
  coordinator_->Change([&] { coordinator_->acks.clear(); });
  hosts_[1]->Fence(kEpoch);
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->acks.size() == 1; }));
  first_link_ = std::move(link);
  std::vector<uint32_t> ids = {1, 2, 3};
  uint64_t step = 0;
  Generate(&ids, testing::Name("a", 1), kEpoch, &step, 3);
  ExpectOracle(ids, 3);
}

TEST_F(ShardHostTest, AGapBreaksTheLinkAndIsReportedOnceWithItsStage) {
  ASSERT_TRUE(Begin(kEpoch));
  ASSERT_TRUE(first_link_->Send(Frame(kEpoch, 2, {})).ok());
  ASSERT_TRUE(coordinator_->Wait([&] { return !coordinator_->faults.empty(); }));
  EXPECT_TRUE(coordinator_->Wait([&] { return !first_link_->Send(Frame(kEpoch, 3, {})).ok(); }));
  MutexLock lock(&coordinator_->mutex);
  ASSERT_EQ(coordinator_->faults.size(), 1u);
  const v1::LinkFault& fault = coordinator_->faults[0];
  EXPECT_EQ(fault.error().reason(), "STEP_GAP");
  EXPECT_EQ(fault.stage(), 0u);
  EXPECT_EQ(fault.epoch(), kEpoch);
  EXPECT_EQ(fault.step(), 2u);
}

TEST_F(ShardHostTest, MoreStepsThanMayBeInFlightBreakTheLink) {
  ASSERT_TRUE(Begin(kEpoch));
  {
    MutexLock busy(&compute_);
    // One computing, those that may wait, and one too many.
    uint64_t step = 0;
    EXPECT_TRUE(coordinator_->Wait([&] {
      return step > 2 * kStages + 9 || !first_link_->Send(Frame(kEpoch, ++step, {})).ok() ||
             !coordinator_->faults.empty();
    }));
    EXPECT_GT(step, kStages + 1u);
  }
  ASSERT_TRUE(coordinator_->Wait([&] { return !coordinator_->faults.empty(); }));
  MutexLock lock(&coordinator_->mutex);
  const v1::LinkFault& fault = coordinator_->faults[0];
  EXPECT_EQ(fault.error().reason(), "TOO_MANY_STEPS");
  EXPECT_EQ(fault.error().limit(), "steps_in_flight=" + std::to_string(kStages + 1));
  EXPECT_EQ(fault.stage(), 0u);
}

TEST_F(ShardHostTest, ABrokenLinkIsReportedByItsEnds) {
  ASSERT_TRUE(Begin(kEpoch));
  results_link_->Break(Error(absl::StatusCode::kUnavailable, "TEST_BREAK", "cut"));
  ASSERT_TRUE(coordinator_->Wait([&] { return !coordinator_->faults.empty(); }));
  {
    MutexLock lock(&coordinator_->mutex);
    EXPECT_EQ(coordinator_->faults[0].error().reason(), "TEST_BREAK");
    EXPECT_EQ(coordinator_->faults[0].stage(), kStages - 1);
  }
  // A stage that goes away is noticed by its neighbours on both sides.
  ASSERT_TRUE(Begin(kEpoch + 1));
  coordinator_->Change([&] { coordinator_->faults.clear(); });
  hosts_[1]->Stop();
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->faults.size() == 2; }));
  MutexLock lock(&coordinator_->mutex);
  std::vector<uint32_t> stages = {coordinator_->faults[0].stage(), coordinator_->faults[1].stage()};
  std::sort(stages.begin(), stages.end());
  EXPECT_EQ(stages, (std::vector<uint32_t>{0, 2}));
}

TEST_F(ShardHostTest, AStepThatHangsIsTold) {
  constexpr milliseconds kTimeout = kGiveUpAfter;
  Start(kTimeout);
  ASSERT_TRUE(Begin(kEpoch));
  const auto hangs = [this] {
    MutexLock lock(&coordinator_->mutex);
    return coordinator_->hangs;
  };
  std::vector<uint32_t> ids = {1, 2, 3};
  uint64_t step = 0;
  Generate(&ids, testing::Name("a", 1), kEpoch, &step, 2);
  hosts_[0]->Watch(2 * kTimeout);
  hosts_[0]->Watch(2 * kTimeout);
  EXPECT_EQ(hangs(), 0) << "nothing is computed";
  for (uint64_t sequence = 2; sequence < 4; ++sequence) {
    const size_t results = Results();
    {
      MutexLock closed(&gate_.mutex);
      const int before = gate_.came;
      ASSERT_TRUE(first_link_
                      ->Send(Frame(kEpoch, ++step,
                                   {testing::Item(testing::Name("b", sequence), ids, 0, 3)}))
                      .ok());
      EXPECT_TRUE(coordinator_->Wait([&] { return gate_.came > before; }));
      hosts_[0]->Watch(2 * kTimeout);  // Of before it, maybe.
      hosts_[0]->Watch(kTimeout / 4 * 3);
      EXPECT_EQ(hangs(), static_cast<int>(sequence) - 2);
      hosts_[0]->Watch(kTimeout / 4);
      EXPECT_EQ(hangs(), static_cast<int>(sequence) - 1);
    }
    EXPECT_TRUE(coordinator_->Wait([&] { return coordinator_->results.size() > results; }));
  }
}

TEST_F(ShardHostTest, AStepThatAnotherWorkerHoldsUpDoesNotHang) {
  constexpr milliseconds kTimeout = kGiveUpAfter;
  Start(kTimeout);
  ASSERT_TRUE(Begin(kEpoch));
  const auto hangs = [this] {
    MutexLock lock(&coordinator_->mutex);
    return coordinator_->hangs;
  };
  const std::vector<uint32_t> ids = {1, 2, 3};
  {
    MutexLock closed(&gate_.mutex);
    const int before = gate_.came;
    ASSERT_TRUE(
        first_link_->Send(Frame(kEpoch, 1, {testing::Item(testing::Name("a", 1), ids, 0, 3)}))
            .ok());
    EXPECT_TRUE(coordinator_->Wait([&] { return gate_.came > before; }));
    hosts_[0]->Watch(kTimeout / 2);
    gate_.holds_up = true;
    hosts_[0]->Watch(2 * kTimeout);
    hosts_[0]->Watch(2 * kTimeout);
    EXPECT_EQ(hangs(), 0);
    gate_.holds_up = false;
    hosts_[0]->Watch(0 * kTimeout);  // From here on.
    hosts_[0]->Watch(kTimeout / 4 * 3);
    EXPECT_EQ(hangs(), 0);
    hosts_[0]->Watch(kTimeout / 4);
    EXPECT_EQ(hangs(), 1);
  }
  EXPECT_TRUE(coordinator_->Wait([&] { return !coordinator_->results.empty(); }));
}

TEST_F(ShardHostTest, LinksOfOtherStagesAndEpochsAreRefused) {
  auto refused = [&](const v1::LinkOpen& open) {
    auto link = dialer_.Dial("node1", open, 4, kGiveUpAfter, [](const absl::Status&) {});
    return ReasonOf(link.status());
  };
  // Before any fence: it may be on its way, so this waits a little.
  EXPECT_EQ(refused(OpenTo(1, kEpoch)), "EPOCH_NOT_LOADED");
  ASSERT_TRUE(Begin(kEpoch + 1));
  EXPECT_EQ(refused(OpenTo(1, kEpoch)), "STALE_EPOCH");
  EXPECT_EQ(refused(OpenTo(2, kEpoch + 1)), "WRONG_STAGE");
  EXPECT_EQ(refused(OpenTo(1, kEpoch + 5)), "EPOCH_NOT_LOADED");
  v1::LinkOpen open = OpenTo(1, kEpoch + 1);
  open.set_pipeline(1);
  EXPECT_EQ(refused(open), "WRONG_STAGE");
  open = OpenTo(1, kEpoch + 1);
  open.clear_from_node();
  EXPECT_EQ(refused(open), "WRONG_STAGE");
  EXPECT_TRUE(coordinator_->faults.empty());
}

TEST_F(ShardHostTest, AFenceWhoseNextStageIsNotThereFailsAfterTheStepTimeout) {
  Start(milliseconds(300));
  dialer_.Listen("node1", nullptr);
  hosts_[0]->Fence(kEpoch);
  ASSERT_TRUE(coordinator_->Wait([&] { return coordinator_->acks.size() == 1; }));
  EXPECT_EQ(coordinator_->acks[0].error().reason(), "LINK_NOT_OPENED");
}

TEST_F(ShardHostTest, ANewerFenceReplacesOneThatStillDials) {
  dialer_.Listen("node1", nullptr);
  hosts_[0]->Fence(kEpoch);
  while (dialer_.dials() == 0) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  dialer_.Listen("node1", [this](const v1::LinkOpen& open, std::shared_ptr<InboundLink> link) {
    return hosts_[1]->AcceptLink(open, std::move(link));
  });
  ASSERT_TRUE(Begin(kEpoch + 1));
  for (const v1::FenceAck& ack : coordinator_->acks) {
    EXPECT_EQ(ack.epoch(), kEpoch + 1);
  }
}

TEST_F(ShardHostTest, AnOlderFenceIsRefused) {
  hosts_[2]->Fence(kEpoch - 1);
  ASSERT_TRUE(coordinator_->Wait([&] {
    return std::any_of(coordinator_->acks.begin(), coordinator_->acks.end(),
                       [](const v1::FenceAck& ack) { return ack.has_error(); });
  }));
}

TEST_F(ShardHostTest, StoppingInTheMiddleOfStepsAndFencesNeverHangs) {
  for (int round = 0; round < 20; ++round) {
    Start(kGiveUpAfter);
    ASSERT_TRUE(Begin(kEpoch));
    std::thread fencer([&] {
      for (uint64_t e = 1; e < 6; ++e) {
        for (auto& host : hosts_) {
          host->Fence(kEpoch + e);
        }
      }
    });
    for (uint64_t s = 1; s <= 4; ++s) {
      first_link_->Send(Frame(kEpoch, s, {})).IgnoreError();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    hosts_[round % kStages]->Stop();
    fencer.join();
    first_link_ = nullptr;
  }
}

}  // namespace
}  // namespace strata
