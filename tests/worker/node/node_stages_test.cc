#include "worker/node/node_stages.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

class FakeHost : public NodeHost {
 public:
  void Say(v1::WorkerMessage message) override { said.push_back(std::move(message)); }
  void Add(StageId stage, const v1::Load&, StageId before) override {
    added.push_back({stage, before});
  }
  void BeginLoad(StageId stage) override { begun.push_back(stage); }
  void TakeOff(StageId stage) override { taken_off.push_back(stage); }
  void Fence(StageId stage, const v1::Fence& fence) override {
    fenced.push_back({stage, fence.epoch()});
  }

  v1::WorkerMessage Take() {
    EXPECT_FALSE(said.empty());
    if (said.empty()) {
      return {};
    }
    v1::WorkerMessage message = said.front();
    said.erase(said.begin());
    return message;
  }

  std::vector<v1::WorkerMessage> said;
  std::vector<std::pair<StageId, StageId>> added;
  std::vector<StageId> begun;
  std::vector<StageId> taken_off;
  std::vector<std::pair<StageId, uint64_t>> fenced;
};

class NodeStagesTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kDeployment = 5;

  void SetUp() override { stages_.BeginLife(1); }

  static v1::CoordinatorMessage LoadOf(uint64_t deployment, uint64_t epoch, uint64_t pages = 8,
                                       const std::string& digest = "weights") {
    v1::CoordinatorMessage message;
    message.mutable_load()->set_deployment(deployment);
    message.mutable_load()->set_epoch(epoch);
    message.mutable_load()->set_weights_digest(digest);
    message.mutable_load()->add_kv_pages(pages);
    return message;
  }
  StageId Load(const v1::CoordinatorMessage& message) {
    EXPECT_TRUE(stages_.OnMessage(message));
    return host_.added.back().first;
  }
  static v1::CoordinatorMessage Beside(v1::CoordinatorMessage message) {
    message.mutable_load()->set_beside(true);
    return message;
  }
  void Unload(uint64_t deployment, uint64_t loaded_epoch = 0) {
    v1::CoordinatorMessage message;
    message.mutable_unload()->set_deployment(deployment);
    message.mutable_unload()->set_loaded_epoch(loaded_epoch);
    EXPECT_TRUE(stages_.OnMessage(message));
  }
  void Fence(uint64_t deployment, uint64_t epoch, uint64_t loaded_epoch = 0) {
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_loaded_epoch(loaded_epoch);
    message.mutable_fence()->set_deployment(deployment);
    message.mutable_fence()->set_epoch(epoch);
    EXPECT_TRUE(stages_.OnMessage(message));
  }
  void Loaded(StageId stage, uint64_t bytes = 0) {
    stages_.OnLoaded(stage, Progress(1), absl::OkStatus(), bytes);
  }
  static v1::LoadProgress Progress(uint64_t done_bytes) {
    v1::LoadProgress progress;
    progress.set_deployment(kDeployment);
    progress.set_done_bytes(done_bytes);
    return progress;
  }
  static v1::LinkOpen Open(uint64_t deployment) {
    v1::LinkOpen open;
    open.set_deployment(deployment);
    return open;
  }

  FakeHost host_;
  NodeStages stages_{"w1", &host_};
};

TEST_F(NodeStagesTest, AStageIsReachedFromTheEndOfItsLoadToItsUnload) {
  const StageId stage = Load(LoadOf(kDeployment, 3));
  EXPECT_EQ(host_.begun, std::vector<StageId>{stage});
  EXPECT_EQ(ReasonOf(stages_.Reaches(Open(kDeployment)).status()), "NO_DEPLOYMENT");
  Loaded(stage);
  EXPECT_EQ(host_.Take().load_progress().phase(), v1::LoadProgress::PHASE_READY);
  EXPECT_EQ(stages_.Reaches(Open(kDeployment)).value(), stage);
  Fence(kDeployment, 3);
  EXPECT_EQ(host_.fenced, (std::vector<std::pair<StageId, uint64_t>>{{stage, 3}}));
  Unload(kDeployment);
  EXPECT_EQ(host_.taken_off, std::vector<StageId>{stage});
  EXPECT_TRUE(stages_.Retired(stage));
  EXPECT_FALSE(stages_.Reaches(Open(kDeployment)).ok());
  EXPECT_TRUE(host_.said.empty()) << "it is not gone yet";
  EXPECT_FALSE(stages_.Empty());
  stages_.OnGone(stage, 7);
  EXPECT_EQ(host_.Take().unload_done().deployment(), kDeployment);
  EXPECT_TRUE(stages_.Empty());
  EXPECT_EQ(stages_.Heartbeat(2).frames_discarded(), 7u);
}

TEST_F(NodeStagesTest, FencesAndUnloadsOfWhatIsNotHereAreAnswered) {
  Fence(9, 4);
  const v1::FenceAck ack = host_.Take().fence_ack();
  EXPECT_EQ(ack.deployment(), 9u);
  EXPECT_EQ(ack.epoch(), 4u);
  EXPECT_EQ(ack.error().reason(), "NO_DEPLOYMENT");
  EXPECT_EQ(ack.error().node(), "w1");
  Unload(9);
  EXPECT_EQ(host_.Take().unload_done().deployment(), 9u);
}

TEST_F(NodeStagesTest, AFenceWhileItLoadsIsRefused) {
  Load(LoadOf(kDeployment, 3));
  Fence(kDeployment, 3);
  EXPECT_EQ(host_.Take().fence_ack().error().reason(), "NO_DEPLOYMENT");
}

TEST_F(NodeStagesTest, ALoadBeginsOnceWhatIsTakenOffIsGone) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old);
  const StageId other = Load(LoadOf(kDeployment + 1, 3));
  Loaded(other);
  host_.begun.clear();
  const StageId stage = Load(LoadOf(kDeployment, 4, 8, "other weights"));
  Unload(kDeployment + 1);
  EXPECT_EQ(host_.added.back(), std::make_pair(stage, StageId{0})) << "other weights";
  stages_.OnGone(old, 0);
  EXPECT_TRUE(host_.begun.empty());
  stages_.OnGone(other, 0);
  EXPECT_EQ(host_.begun, std::vector<StageId>{stage});
}

TEST_F(NodeStagesTest, OtherKvTakesTheWeightsOver) {
  const StageId old = Load(LoadOf(kDeployment, 3, 8));
  Loaded(old);
  const StageId stage = Load(LoadOf(kDeployment, 4, 16));
  EXPECT_EQ(host_.added.back(), std::make_pair(stage, old));
  EXPECT_EQ(host_.taken_off, std::vector<StageId>{old});
}

TEST_F(NodeStagesTest, ALoadThatNeverBeganFailsWhenAnotherComes) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old);
  host_.said.clear();
  Load(LoadOf(kDeployment, 4));
  const StageId newest = Load(LoadOf(kDeployment, 5));
  const v1::LoadProgress failed = host_.Take().load_progress();
  EXPECT_EQ(failed.phase(), v1::LoadProgress::PHASE_FAILED);
  EXPECT_EQ(failed.epoch(), 4u);
  EXPECT_EQ(failed.error().reason(), "CANCELLED");
  host_.begun.clear();
  for (const StageId gone : std::vector<StageId>(host_.taken_off)) {
    stages_.OnGone(gone, 0);
  }
  EXPECT_EQ(host_.begun, std::vector<StageId>{newest});
  EXPECT_TRUE(host_.said.empty()) << "nobody asked for the old ones to be unloaded";
}

TEST_F(NodeStagesTest, ProgressIsToldOnceAndNotAfterTheEnd) {
  const StageId stage = Load(LoadOf(kDeployment, 3));
  stages_.OnProgress(stage, Progress(1));
  stages_.OnProgress(stage, Progress(1));
  stages_.OnProgress(stage, Progress(2));
  EXPECT_EQ(host_.said.size(), 2u);
  stages_.OnLoaded(stage, Progress(3),
                   Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT", "full"), 0);
  stages_.OnProgress(stage, Progress(4));
  ASSERT_EQ(host_.said.size(), 3u);
  const v1::LoadProgress& failed = host_.said.back().load_progress();
  EXPECT_EQ(failed.phase(), v1::LoadProgress::PHASE_FAILED);
  EXPECT_EQ(failed.error().reason(), "MEMORY_LIMIT");
  EXPECT_EQ(failed.error().node(), "w1");
  EXPECT_EQ(stages_.Loaded(kDeployment), 0u);
}

TEST_F(NodeStagesTest, TheEndOfALifeTakesAllOffAndSaysNothing) {
  const StageId loaded = Load(LoadOf(kDeployment, 3));
  Loaded(loaded);
  const StageId loading = Load(LoadOf(kDeployment + 1, 3));
  Unload(kDeployment);
  host_.said.clear();
  stages_.EndLife();
  EXPECT_EQ(std::set<StageId>(host_.taken_off.begin(), host_.taken_off.end()),
            (std::set<StageId>{loaded, loading}));
  EXPECT_TRUE(stages_.OnMessage(LoadOf(kDeployment, 4))) << "ignored between lives";
  stages_.BeginLife(2);
  stages_.OnLoaded(loading, Progress(3), absl::CancelledError(), 0);
  stages_.OnGone(loading, 0);
  stages_.OnGone(loaded, 0);
  EXPECT_TRUE(host_.said.empty()) << "of the life before";
  EXPECT_EQ(host_.added.size(), 2u);
  EXPECT_EQ(stages_.incarnation(), 2u);
}

TEST_F(NodeStagesTest, MemoryIsOfWhatIsPlaced) {
  const StageId a = Load(LoadOf(kDeployment, 3));
  Loaded(a, 100);
  const StageId b = Load(LoadOf(kDeployment + 1, 3));
  stages_.SetBytes(b, 30);
  EXPECT_EQ(stages_.BytesBeside(0), 130u);
  EXPECT_EQ(stages_.BytesBeside(b), 100u);
  stages_.OnLoaded(b, Progress(1), absl::UnavailableError("gone"), 0);
  EXPECT_EQ(stages_.BytesBeside(0), 100u);
  Unload(kDeployment);
  EXPECT_EQ(stages_.BytesBeside(0), 0u);
}

TEST_F(NodeStagesTest, AStageLoadedBesideAnotherTakesItsPlaceByTheFenceThatNamesIt) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old, 100);
  const StageId fresh = Load(Beside(LoadOf(kDeployment, 4)));
  EXPECT_EQ(host_.added.back(), std::make_pair(fresh, StageId{0})) << "the weights are in use";
  EXPECT_EQ(host_.begun.back(), fresh) << "at once";
  EXPECT_TRUE(host_.taken_off.empty());
  EXPECT_EQ(stages_.Placed(), (std::vector<StageId>{old, fresh}));
  stages_.SetBytes(fresh, 30);
  EXPECT_EQ(stages_.BytesBeside(0), 130u);
  EXPECT_EQ(stages_.BytesBeside(fresh), 100u);
  Fence(kDeployment, 5, /*loaded_epoch=*/4);
  EXPECT_EQ(host_.said.back().fence_ack().error().reason(), "NO_DEPLOYMENT") << "not loaded yet";
  EXPECT_EQ(stages_.Loaded(kDeployment), old);
  Loaded(fresh, 30);
  Fence(kDeployment, 6);
  Fence(kDeployment, 7, /*loaded_epoch=*/3);
  EXPECT_EQ(host_.fenced.back(), std::make_pair(old, uint64_t{7}));
  EXPECT_EQ(stages_.Reaches(Open(kDeployment)).value(), old);
  Fence(kDeployment, 8, /*loaded_epoch=*/4);
  EXPECT_EQ(host_.taken_off, std::vector<StageId>{old});
  EXPECT_EQ(host_.fenced.back(), std::make_pair(fresh, uint64_t{8}));
  EXPECT_EQ(stages_.Reaches(Open(kDeployment)).value(), fresh);
  Fence(kDeployment, 9, /*loaded_epoch=*/4);
  EXPECT_EQ(host_.fenced.back(), std::make_pair(fresh, uint64_t{9}));
  Fence(kDeployment, 10, /*loaded_epoch=*/3);
  EXPECT_EQ(host_.fenced.back(), std::make_pair(fresh, uint64_t{9})) << "of one that is gone";
}

TEST_F(NodeStagesTest, LinksAreOpenedAheadToTheStageThatIsNamedAndNothingTakesAPlace) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old);
  const StageId fresh = Load(Beside(LoadOf(kDeployment, 4)));
  const auto ahead = [&](uint64_t epoch, uint64_t loaded_epoch) {
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_deployment(kDeployment);
    message.mutable_fence()->set_epoch(epoch);
    message.mutable_fence()->set_loaded_epoch(loaded_epoch);
    message.mutable_fence()->set_ahead(true);
    EXPECT_TRUE(stages_.OnMessage(message));
  };
  v1::LinkOpen open = Open(kDeployment);
  open.set_epoch(6);
  ahead(6, 4);
  EXPECT_TRUE(host_.fenced.empty());
  EXPECT_EQ(host_.said.back().fence_ack().error().reason(), "NO_DEPLOYMENT") << "not loaded yet";
  EXPECT_TRUE(host_.said.back().fence_ack().ahead());
  EXPECT_EQ(stages_.Reaches(open).value(), old);
  Loaded(fresh);
  ahead(6, 4);
  EXPECT_EQ(host_.fenced.back(), std::make_pair(fresh, uint64_t{6}));
  EXPECT_TRUE(host_.taken_off.empty());
  EXPECT_EQ(stages_.Loaded(kDeployment), old);
  EXPECT_EQ(stages_.Reaches(open).value(), fresh);
  open.set_epoch(5);
  EXPECT_EQ(stages_.Reaches(open).value(), old) << "whose epochs go on";
  ahead(7, 3);
  EXPECT_EQ(host_.fenced.back(), std::make_pair(old, uint64_t{7})) << "one that stays";
  Fence(kDeployment, 6, /*loaded_epoch=*/4);
  EXPECT_EQ(host_.taken_off, std::vector<StageId>{old});
  open.set_epoch(6);
  EXPECT_EQ(stages_.Reaches(open).value(), fresh);
}

TEST_F(NodeStagesTest, StagesAreFoundByTheEpochOfTheirLoadOnceTheyAreLoaded) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  EXPECT_EQ(stages_.LoadedBy(kDeployment, 3), 0u);
  Loaded(old);
  const StageId fresh = Load(Beside(LoadOf(kDeployment, 4)));
  Loaded(fresh);
  EXPECT_EQ(stages_.LoadedBy(kDeployment, 3), old);
  EXPECT_EQ(stages_.LoadedBy(kDeployment, 4), fresh);
  EXPECT_EQ(stages_.LoadedBy(kDeployment, 5), 0u);
  EXPECT_EQ(stages_.LoadedBy(kDeployment + 1, 3), 0u);
}

TEST_F(NodeStagesTest, AStageThatGivesItsKvStaysUntilItsOwnUnload) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old, 100);
  const StageId fresh = Load(Beside(LoadOf(kDeployment, 4)));
  Loaded(fresh, 30);
  EXPECT_EQ(stages_.GivesKv(kDeployment, 9), 0u);
  EXPECT_EQ(stages_.GivesKv(kDeployment, 3), old);
  Fence(kDeployment, 8, /*loaded_epoch=*/4);
  EXPECT_TRUE(host_.taken_off.empty());
  EXPECT_EQ(stages_.Loaded(kDeployment), fresh);
  EXPECT_EQ(stages_.Reaches(Open(kDeployment)).value(), fresh);
  EXPECT_EQ(stages_.LoadedBy(kDeployment, 3), old) << "for the rest of its KV";
  EXPECT_EQ(stages_.BytesBeside(fresh), 100u);
  Unload(kDeployment, /*loaded_epoch=*/3);
  EXPECT_EQ(host_.taken_off, std::vector<StageId>{old});
  EXPECT_EQ(stages_.Loaded(kDeployment), fresh);
  EXPECT_EQ(stages_.LoadedBy(kDeployment, 3), 0u);
}

TEST_F(NodeStagesTest, AStageThatGivesItsKvEndsWithWhateverComesNext) {
  for (const bool life : {false, true}) {
    const StageId old = Load(LoadOf(kDeployment, 3));
    Loaded(old);
    const StageId fresh = Load(Beside(LoadOf(kDeployment, 4)));
    Loaded(fresh);
    stages_.GivesKv(kDeployment, 3);
    Fence(kDeployment, 8, /*loaded_epoch=*/4);
    host_.taken_off.clear();
    if (life) {
      stages_.EndLife();
    } else {
      Load(Beside(LoadOf(kDeployment, 5)));
    }
    EXPECT_NE(std::find(host_.taken_off.begin(), host_.taken_off.end(), old),
              host_.taken_off.end());
    EXPECT_EQ(stages_.LoadedBy(kDeployment, 3), 0u);
    Unload(kDeployment);
  }
}

TEST_F(NodeStagesTest, WhatIsLoadedBesideAnotherIsTakenOffByItsOwnUnload) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old);
  const StageId first = Load(Beside(LoadOf(kDeployment, 4)));
  const StageId second = Load(Beside(LoadOf(kDeployment, 5)));
  EXPECT_EQ(host_.taken_off, std::vector<StageId>{first}) << "there is one at most";
  Unload(kDeployment, /*loaded_epoch=*/4);
  EXPECT_EQ(host_.taken_off.size(), 1u) << "of one that is gone";
  Unload(kDeployment, /*loaded_epoch=*/5);
  EXPECT_EQ(host_.taken_off.back(), second);
  EXPECT_EQ(stages_.Loaded(kDeployment), old);
  // Where nothing stood.
  const StageId alone = Load(Beside(LoadOf(kDeployment + 1, 6)));
  EXPECT_EQ(stages_.Placed(), (std::vector<StageId>{old, alone}));
  Unload(kDeployment + 1, /*loaded_epoch=*/6);
  EXPECT_EQ(host_.taken_off.back(), alone);
}

TEST_F(NodeStagesTest, ALoadOrUnloadOfTheWholeTakesBothStagesOff) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old);
  const StageId beside = Load(Beside(LoadOf(kDeployment, 4)));
  const StageId anew = Load(LoadOf(kDeployment, 5));
  EXPECT_EQ(std::set<StageId>(host_.taken_off.begin(), host_.taken_off.end()),
            (std::set<StageId>{old, beside}));
  const StageId again = Load(Beside(LoadOf(kDeployment, 6)));
  Unload(kDeployment);
  EXPECT_EQ(std::set<StageId>(host_.taken_off.begin(), host_.taken_off.end()),
            (std::set<StageId>{old, beside, anew, again}));
  EXPECT_TRUE(stages_.Placed().empty());
}

TEST_F(NodeStagesTest, ALinkThatComesBeforeItsFenceMayComeAgain) {
  const StageId old = Load(LoadOf(kDeployment, 3));
  Loaded(old);
  v1::LinkOpen open = Open(kDeployment);
  open.set_to_stage(1);
  EXPECT_EQ(stages_.Reaches(open).value(), old) << "which refuses it for good";
  Load(Beside(LoadOf(kDeployment, 4)));
  EXPECT_EQ(ReasonOf(stages_.Reaches(open).status()), "EPOCH_NOT_LOADED");
  EXPECT_EQ(stages_.Reaches(Open(kDeployment)).value(), old);
}

TEST_F(NodeStagesTest, HeartbeatsSayThatItLeaves) {
  EXPECT_FALSE(stages_.Heartbeat(4).leaving());
  stages_.Leave();
  EXPECT_TRUE(stages_.Heartbeat(4).leaving());
  EXPECT_EQ(stages_.Heartbeat(4).term(), 4u);
}

}  // namespace
}  // namespace strata
