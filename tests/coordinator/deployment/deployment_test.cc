#include "coordinator/deployment/deployment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/deployment/fake_deployment_host.h"

namespace strata {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint64_t kId = 5;
const nanoseconds kLoadTimeout = DeploymentOptions().load_timeout;

struct TestModel : DeployedModel {
  TestModel() {
    name = "m";
    model_spec.vocab = 97;
    model_spec.kv_groups = {KvGroupSpec{}};
    model_spec.layers.resize(4);
  }
  const ModelSpec& spec() const override { return model_spec; }
  const std::string& config_json() const override { return config; }
  const std::string& weights_digest() const override { return digest; }
  std::vector<v1::TensorBlob> StageTensors(uint32_t, uint32_t, bool, bool) const override {
    return {};
  }

  ModelSpec model_spec;
  std::string config = "{}";
  std::string digest = "digest";
};

std::shared_ptr<const DeployedModel> MakeModel() { return std::make_shared<TestModel>(); }

v1::Plan MakePlan(uint64_t pages) {
  v1::Plan plan;
  plan.mutable_numerics_class()->set_name("test-1");
  uint32_t layer = 0;
  for (const char* node : {"a", "b"}) {
    v1::PlanStage* stage =
        (plan.pipelines_size() == 0 ? plan.add_pipelines() : plan.mutable_pipelines(0))
            ->add_stages();
    stage->add_ranks()->set_node(node);
    stage->set_first_layer(layer);
    stage->set_last_layer(layer + 1);
    stage->add_kv_pages(pages);
    layer += 2;
  }
  return plan;
}

v1::LoadOptions MakeOptions(uint64_t kv_tokens) {
  v1::LoadOptions options;
  options.set_context(2048);
  options.set_max_batch_tokens(64);
  options.set_kv_tokens(kv_tokens);
  return options;
}

struct Sink : SessionSink {
  void OnStarted(const StartedInfo&) override { started = true; }
  void OnRows(const RowsInfo&) override {}
  Verdict OnToken(const TokenInfo&) override { return Verdict::kContinue; }
  void OnDone(const FinishInfo&) override { done = true; }
  void OnFailed(const absl::Status& status) override { failed = status; }
  bool started = false;
  bool done = false;
  absl::Status failed;
};

class DeploymentTest : public ::testing::Test {
 protected:
  DeploymentTest()
      : deployment_(kId, MakeModel(), MakePlan(32), MakeOptions(512), {}, {}, &host_) {}

  void Record() { deployment_.OnRecorded(deployment_.Record().plan.epoch(), absl::OkStatus()); }
  void Load() {
    Record();
    deployment_.Load({{"a", 11}, {"b", 12}});
  }

  void Progress(const std::string& node, v1::LoadProgress::Phase phase, uint64_t epoch,
                uint64_t done_bytes = 0) {
    v1::LoadProgress progress;
    progress.set_done_bytes(done_bytes);
    progress.set_deployment(kId);
    progress.set_epoch(epoch);
    progress.set_phase(phase);
    if (phase == v1::LoadProgress::PHASE_FAILED) {
      *progress.mutable_error() =
          Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT", "no room").Detail();
    }
    deployment_.OnLoadProgress(node, progress);
  }
  void BothReady() {
    const uint64_t epoch = deployment_.plan().epoch();
    Progress("a", v1::LoadProgress::PHASE_READY, epoch);
    Progress("b", v1::LoadProgress::PHASE_READY, epoch);
  }
  void Ack(const std::string& node, uint64_t epoch) {
    v1::FenceAck ack;
    ack.set_deployment(kId);
    ack.set_epoch(epoch);
    deployment_.pipeline()->OnFenceAck(node, ack);
  }
  void BothAckAndLink() {
    const uint64_t epoch = deployment_.plan().epoch();
    Ack("a", epoch);
    Ack("b", epoch);
    host_.OpenLast();
  }
  // The result of the frame sent last, as both stages would give it.
  void Commit(uint64_t link, uint64_t pages) {
    const v1::StepFrame& frame = host_.frames.back().header;
    ResultMessage result;
    result.header.set_deployment(kId);
    result.header.set_epoch(frame.epoch());
    result.header.set_step(frame.step());
    for (uint32_t s = 0; s < 2; ++s) {
      v1::StageKv* stage = result.header.add_stages();
      stage->set_stage(s);
      stage->add_total_pages(pages);
      stage->add_free_pages(pages);
    }
    deployment_.pipeline()->OnResult(link, std::move(result));
  }
  uint64_t OpenResults(uint64_t incarnation = 12) {
    v1::LinkOpen open;
    open.set_from_node("b");
    open.set_from_incarnation(incarnation);
    open.set_epoch(deployment_.plan().epoch());
    open.set_to_stage(2);
    return deployment_.pipeline()->AcceptResults(open).value_or(0);
  }
  void MakeReady() {
    Load();
    BothReady();
    BothAckAndLink();
    host_.TakeLoads("a");
    host_.TakeLoads("b");
    host_.TakeFences("a");
    host_.TakeFences("b");
    Commit(OpenResults(), 32);
  }
  std::shared_ptr<Sink> Submit(const std::string& id, uint32_t prompt, uint32_t max_tokens) {
    auto sink = std::make_shared<Sink>();
    SessionRequest request;
    request.key = request.request_id = id;
    request.prompt.assign(prompt, 1);
    request.max_tokens = max_tokens;
    const absl::Status status = deployment_.engine()->Submit(std::move(request), sink, host_.Now());
    EXPECT_TRUE(status.ok()) << status;
    return sink;
  }

  FakeDeploymentHost host_;
  Deployment deployment_;
};

TEST_F(DeploymentTest, LoadsFencesLinksAndIsReady) {
  Load();
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
  EXPECT_EQ(deployment_.plan().epoch(), 1u);
  const std::vector<v1::Load> loads = host_.TakeLoads("a");
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].next_node(), "b");
  EXPECT_EQ(loads[0].next_incarnation(), 12u);
  EXPECT_EQ(host_.TakeLoads("b")[0].next_incarnation(), 99u) << "the coordinator's own";
  EXPECT_FALSE(deployment_.serves());
  BothReady();
  EXPECT_EQ(host_.TakeFences("a").size(), 1u);
  Ack("a", 1);
  EXPECT_EQ(host_.dialled.size(), 0u) << "b has not answered";
  EXPECT_EQ(deployment_.pipeline()->UnfencedNodes(), std::vector<std::string>{"b"});
  Ack("b", 1);
  ASSERT_EQ(host_.dialled.size(), 1u);
  EXPECT_EQ(host_.dialled[0].request.address, "a:1");
  host_.OpenLast();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_EQ(host_.placements.back(), std::make_pair(true, true));
  ASSERT_EQ(host_.frames.size(), 1u);
  EXPECT_TRUE(host_.frames[0].header.resync());
}

TEST_F(DeploymentTest, ProgressOfAnotherEpochOrTwiceCountsForNothing) {
  Load();
  Progress("a", v1::LoadProgress::PHASE_READY, 1);
  Progress("b", v1::LoadProgress::PHASE_READY, 7);
  Progress("c", v1::LoadProgress::PHASE_READY, 1);
  EXPECT_EQ(deployment_.engine(), nullptr);
  Progress("b", v1::LoadProgress::PHASE_READY, 1);
  const Engine* engine = deployment_.engine();
  ASSERT_NE(engine, nullptr);
  Progress("b", v1::LoadProgress::PHASE_READY, 1);
  EXPECT_EQ(deployment_.engine(), engine);
  EXPECT_EQ(host_.TakeFences("b").size(), 1u);
}

TEST_F(DeploymentTest, AFailedLoadNamesItsNodeAndUnloadsTheOthers) {
  Load();
  Progress("b", v1::LoadProgress::PHASE_FAILED, 1);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "MEMORY_LIMIT");
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "b");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  EXPECT_EQ(host_.placements.back(), std::make_pair(false, false));
}

TEST_F(DeploymentTest, AWorkerThatNeverAnswersIsNamedAndFailsTheLoadInTime) {
  Load();
  const TimePoint sent = host_.now;
  ASSERT_EQ(deployment_.Waits().size(), 2u);
  EXPECT_EQ(deployment_.Waits()[1].node, "b");
  EXPECT_THAT(deployment_.Waits()[1].what, HasSubstr("layers 2-3 of model m"));
  host_.now = sent + kLoadTimeout - seconds(1);
  Progress("a", v1::LoadProgress::PHASE_FETCHING, 1);
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
  EXPECT_EQ(deployment_.NextWake(), sent + kLoadTimeout);
  EXPECT_EQ(deployment_.Progress()[0].silent_s(), 0);
  EXPECT_EQ(deployment_.Progress()[1].silent_s(), ToMs(kLoadTimeout - seconds(1)) / 1e3);
  host_.now = sent + kLoadTimeout;
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "LOAD_TIMEOUT");
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "b");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
}

TEST_F(DeploymentTest, AWorkerThatGetsFurtherMayTakeAsLongAsItNeeds) {
  Load();
  Progress("b", v1::LoadProgress::PHASE_READY, 1);
  for (uint64_t done = 0; done < 10; ++done) {
    host_.now += kLoadTimeout - seconds(1);
    Progress("a", v1::LoadProgress::PHASE_FETCHING, 1, done);
    deployment_.Tick(host_.now);
    ASSERT_EQ(deployment_.state(), DeploymentState::kLoading);
  }
  // Saying the same again is no progress.
  host_.now += kLoadTimeout - seconds(1);
  Progress("a", v1::LoadProgress::PHASE_FETCHING, 1, 9);
  host_.now += seconds(1);
  deployment_.Tick(host_.now);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "LOAD_TIMEOUT");
}

TEST_F(DeploymentTest, AResizeThatAWorkerNeverAnswersIsUndoneAndAnUndoingThatItDoesNotFails) {
  MakeReady();
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  Progress("a", v1::LoadProgress::PHASE_READY, deployment_.plan().epoch());
  host_.now += kLoadTimeout;
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kResizing);
  EXPECT_EQ(ReasonOf(deployment_.resize_problem()), "LOAD_TIMEOUT");
  EXPECT_EQ(deployment_.load_options().kv_tokens(), 512u);
  host_.now += kLoadTimeout;
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
}

TEST_F(DeploymentTest, AResizeMayBeGivenTheOptionsThatStand) {
  MakeReady();
  const uint32_t tokens = deployment_.load_options().max_batch_tokens();
  ASSERT_GT(tokens, 0u);
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), deployment_.load_options()).ok());
  EXPECT_EQ(deployment_.load_options().max_batch_tokens(), tokens);
  EXPECT_EQ(deployment_.load_options().kv_tokens(), 512u);
}

TEST_F(DeploymentTest, AFailedLoadIsDueAgainLaterAndLaterUntilTheModelIsReady) {
  nanoseconds before(0);
  for (uint32_t failed = 1; failed <= 20; ++failed) {
    Load();
    Progress("b", v1::LoadProgress::PHASE_FAILED, deployment_.plan().epoch());
    ASSERT_EQ(deployment_.retry().failed(), failed);
    ASSERT_TRUE(deployment_.retry().due().has_value());
    const nanoseconds delay = *deployment_.retry().due() - host_.now;
    EXPECT_GE(delay, before);
    EXPECT_LE(delay, LoadRetryOptions().most);
    before = delay;
    EXPECT_EQ(deployment_.NextWake(), deployment_.retry().due());
    EXPECT_FALSE(deployment_.BeginRetry(*deployment_.retry().due() - nanoseconds(1)));
    EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
    host_.now = *deployment_.retry().due();
    EXPECT_TRUE(deployment_.BeginRetry(host_.now));
    EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  }
  EXPECT_EQ(before, LoadRetryOptions().most);
  Load();
  EXPECT_EQ(deployment_.retry().failed(), 20u) << "until it is ready";
  BothReady();
  BothAckAndLink();
  EXPECT_EQ(deployment_.retry().failed(), 0u);
}

TEST_F(DeploymentTest, ALoadThatIsRefusedForWhatItIsIsNotTriedAgain) {
  Load();
  v1::LoadProgress progress;
  progress.set_epoch(1);
  progress.set_phase(v1::LoadProgress::PHASE_FAILED);
  *progress.mutable_error() =
      Error(absl::StatusCode::kUnimplemented, "NOT_IMPLEMENTED", "no such layer").Detail();
  deployment_.OnLoadProgress("a", progress);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_FALSE(deployment_.retry().due().has_value());
  EXPECT_FALSE(deployment_.NextWake().has_value());
  EXPECT_FALSE(deployment_.BeginRetry(host_.now + std::chrono::hours(1000)));
}

TEST(LoadRetry, TellsCausesThatMayGoFromThoseThatStay) {
  const auto may_go = [](absl::StatusCode code, const char* reason) {
    return MayGoByItself(Error(code, reason, "x"));
  };
  EXPECT_TRUE(may_go(absl::StatusCode::kResourceExhausted, "DISK_FULL"));
  EXPECT_TRUE(may_go(absl::StatusCode::kUnavailable, "LINK_BROKEN"));
  EXPECT_TRUE(may_go(absl::StatusCode::kDeadlineExceeded, "LOAD_TIMEOUT"));
  EXPECT_TRUE(may_go(absl::StatusCode::kFailedPrecondition, "MODEL_CHANGED"));
  EXPECT_FALSE(may_go(absl::StatusCode::kFailedPrecondition, "NUMERICS_CLASS"));
  EXPECT_FALSE(may_go(absl::StatusCode::kInvalidArgument, "BAD_LOAD"));
  EXPECT_FALSE(may_go(absl::StatusCode::kNotFound, "NO_BLOB"));
}

TEST(LoadRetry, NeverTriesAgainWithoutADelay) {
  LoadRetry retry({.first = nanoseconds(0)});
  retry.Failed(absl::UnavailableError("x"), true, seconds(1));
  EXPECT_FALSE(retry.due().has_value());
  EXPECT_EQ(retry.failed(), 1u);
}

TEST_F(DeploymentTest, RequestsEndBeforeALeavingNodeIsUnloadedAndNewOnesAreRefused) {
  MakeReady();
  const auto sink = Submit("r", 4, 8);
  deployment_.OnNodeLeaving("c");
  EXPECT_TRUE(deployment_.serves()) << "another's node";
  deployment_.OnNodeLeaving("b");
  EXPECT_FALSE(deployment_.serves());
  EXPECT_EQ(ReasonOf(deployment_.problem()), "NODE_STOPPED");
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "b");
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(host_.TakeUnloads("b").empty());
  EXPECT_TRUE(deployment_.engine()->Cancel("r", absl::OkStatus(), host_.Now()));
  EXPECT_TRUE(sink->done);
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
  Load();
  BothReady();
  BothAckAndLink();
  EXPECT_TRUE(deployment_.serves());
}

TEST_F(DeploymentTest, ALoadOnALeavingNodeEndsAtOnce) {
  Load();
  deployment_.OnNodeLeaving("a");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
}

TEST_F(DeploymentTest, ARecordLeavesEpochsAheadOfThoseInUse) {
  MakeReady();
  const StoredDeployment record = deployment_.Record();
  EXPECT_EQ(record.id, kId);
  EXPECT_EQ(record.model, "m");
  EXPECT_EQ(record.options.kv_tokens(), 512u);
  EXPECT_EQ(record.plan.pipelines(0).stages_size(), 2);
  EXPECT_GT(record.plan.epoch(), deployment_.plan().epoch() + 100);
}

TEST_F(DeploymentTest, AnEpochThatCannotBeRecordedIsNotUsed) {
  deployment_.Load({{"a", 11}, {"b", 12}});
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "EPOCHS_NOT_RECORDED");
  EXPECT_TRUE(host_.TakeLoads("a").empty());
  EXPECT_EQ(host_.records_asked, 1);
  deployment_.OnRecorded(1000, Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full"));
  deployment_.Load({{"a", 11}, {"b", 12}});
  EXPECT_EQ(ReasonOf(deployment_.problem()), "STORE_FULL");
  EXPECT_TRUE(host_.TakeLoads("a").empty());
  EXPECT_EQ(host_.records_asked, 2);
  Load();
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
}

// The fence that asks for a record goes out before there is one.
TEST_F(DeploymentTest, FencesNeedNoDiskUntilTheRecordedEpochsAreUsed) {
  MakeReady();
  const uint64_t recorded = deployment_.Record().plan.epoch() - 1;
  uint64_t epoch = deployment_.plan().epoch();
  while (host_.records_asked == 0) {
    ASSERT_LT(epoch, recorded);
    deployment_.pipeline()->SendFence(++epoch);
    ASSERT_EQ(host_.TakeFences("a").size(), 1u);
  }
  EXPECT_LT(epoch, recorded - 100) << "while there is time";
  while (epoch < recorded) {
    deployment_.pipeline()->SendFence(++epoch);
    ASSERT_EQ(host_.TakeFences("a").size(), 1u);
  }
  EXPECT_EQ(host_.records_asked, 1) << "it has not been answered";
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  deployment_.pipeline()->SendFence(++epoch);
  EXPECT_TRUE(host_.TakeFences("a").empty());
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "EPOCHS_NOT_RECORDED");
}

TEST_F(DeploymentTest, ARecordInTimeGivesNewEpochs) {
  MakeReady();
  uint64_t epoch = deployment_.plan().epoch();
  for (int i = 0; i < 3000; ++i) {
    deployment_.pipeline()->SendFence(++epoch);
    if (std::exchange(host_.records_asked, 0) != 0) Record();
  }
  EXPECT_EQ(host_.TakeFences("a").size(), 3000u);
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
}

TEST_F(DeploymentTest, ARecordThatFailedIsAskedForAgainAtTheNextEpoch) {
  MakeReady();
  EXPECT_EQ(host_.records_asked, 0);
  deployment_.OnRecorded(0, Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full"));
  const uint64_t epoch = deployment_.plan().epoch();
  deployment_.pipeline()->SendFence(epoch + 1);
  EXPECT_EQ(host_.records_asked, 1);
  EXPECT_EQ(host_.TakeFences("a").size(), 1u) << "there are epochs left";
  Record();
  deployment_.pipeline()->SendFence(epoch + 2);
  EXPECT_EQ(host_.records_asked, 1);
}

TEST_F(DeploymentTest, ALostNodeIsWaitedForAndItsSessionsFailAfterAWhile) {
  MakeReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.OnNodeLost("elsewhere");
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  deployment_.OnNodeLost("b");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_FALSE(deployment_.serves());
  EXPECT_EQ(host_.links_open, 0);
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  ASSERT_TRUE(deployment_.NextWake().has_value());
  EXPECT_LE(*deployment_.NextWake(), host_.now + seconds(11)) << "step and recovery timeout";
  EXPECT_TRUE(sink->failed.ok());
  host_.now = *deployment_.NextWake();
  deployment_.Tick(host_.now);
  EXPECT_EQ(ReasonOf(sink->failed), "NODE_LOST");
  EXPECT_EQ(DetailOf(sink->failed).node(), "b");
  EXPECT_EQ(deployment_.engine(), nullptr);
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  const uint64_t epoch = deployment_.plan().epoch();
  deployment_.Load({{"a", 11}, {"b", 13}});
  EXPECT_GT(deployment_.plan().epoch(), epoch);
  EXPECT_EQ(host_.TakeLoads("a")[0].next_incarnation(), 13u);
}

TEST_F(DeploymentTest, ALostNodeWithoutSessionsIsWaitedForWithoutAnEngine) {
  MakeReady();
  deployment_.OnNodeLost("b");
  EXPECT_EQ(deployment_.engine(), nullptr);
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
}

TEST_F(DeploymentTest, SessionsGoOnOnceALostNodeIsBackAndLoaded) {
  MakeReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.OnNodeLost("b");
  deployment_.Load({{"a", 11}, {"b", 13}});
  // What was dialled for the loss before is of no account.
  host_.OpenLast();
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
  // It is lost once more, in the middle of loading.
  deployment_.OnNodeLost("b");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  deployment_.Load({{"a", 11}, {"b", 14}});
  BothReady();
  EXPECT_TRUE(sink->failed.ok());
  BothAckAndLink();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(deployment_.serves());
  ASSERT_TRUE(host_.frames.back().header.resync());
  EXPECT_EQ(host_.frames.back().header.epoch(), deployment_.plan().epoch());
  Commit(OpenResults(14), 32);
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
  EXPECT_EQ(host_.frames.back().header.items(0).position(), 0u) << "from its tokens";
}

TEST_F(DeploymentTest, SessionsThatWaitForANodeMayBeCancelledAndItsLoadMayFail) {
  MakeReady();
  const auto first = Submit("r1", 10, 10);
  const auto second = Submit("r2", 10, 10);
  deployment_.OnNodeLost("b");
  EXPECT_TRUE(deployment_.engine()->Cancel("r1", absl::OkStatus(), host_.now));
  EXPECT_TRUE(first->done);
  deployment_.Load({{"a", 11}, {"b", 13}});
  Progress("b", v1::LoadProgress::PHASE_FAILED, deployment_.plan().epoch());
  EXPECT_EQ(ReasonOf(second->failed), "MEMORY_LIMIT");
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
}

TEST_F(DeploymentTest, OnlyTheNewestResultsLinkCounts) {
  MakeReady();
  const uint64_t older = OpenResults();
  const uint64_t newer = OpenResults();
  ASSERT_NE(older, 0u);
  ASSERT_NE(newer, 0u);
  const uint64_t faults = deployment_.engine()->Snapshot(host_.now).counters.faults;
  deployment_.pipeline()->OnResultsClosed(older, absl::UnavailableError("gone"));
  EXPECT_EQ(deployment_.engine()->Snapshot(host_.now).counters.faults, faults);
  deployment_.pipeline()->OnResultsClosed(newer, absl::UnavailableError("gone"));
  EXPECT_EQ(deployment_.engine()->Snapshot(host_.now).counters.faults, faults + 1);
}

TEST_F(DeploymentTest, ResultsOfAnotherNodeLifeOrEpochAreNotAccepted) {
  MakeReady();
  v1::LinkOpen open;
  open.set_from_node("b");
  open.set_from_incarnation(12);
  open.set_epoch(deployment_.plan().epoch());
  open.set_to_stage(2);
  EXPECT_TRUE(deployment_.pipeline()->AcceptResults(open).has_value());
  v1::LinkOpen other = open;
  other.set_from_node("a");
  EXPECT_FALSE(deployment_.pipeline()->AcceptResults(other).has_value());
  other = open;
  other.set_from_incarnation(11);
  EXPECT_FALSE(deployment_.pipeline()->AcceptResults(other).has_value());
  other = open;
  other.set_epoch(open.epoch() + 1);
  EXPECT_FALSE(deployment_.pipeline()->AcceptResults(other).has_value());
}

TEST_F(DeploymentTest, AResizeKeepsItsSessionsWaiting) {
  MakeReady();
  const auto running = Submit("r1", 10, 10);
  EXPECT_TRUE(running->started);
  const size_t frames = host_.frames.size();
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  EXPECT_EQ(deployment_.state(), DeploymentState::kResizing);
  EXPECT_TRUE(deployment_.serves());
  EXPECT_EQ(host_.links_open, 0);
  const auto queued = Submit("r2", 700, 10);
  EXPECT_FALSE(queued->started);
  const v1::Load load = host_.TakeLoads("a")[0];
  EXPECT_EQ(load.kv_pages(0), 64u);
  EXPECT_EQ(load.next_incarnation(), 12u);
  EXPECT_EQ(load.epoch(), deployment_.plan().epoch());
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 1024u);
  BothReady();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(deployment_.resize_problem().ok());
  BothAckAndLink();
  Commit(OpenResults(), 64);
  EXPECT_TRUE(queued->started);
  EXPECT_GT(host_.frames.size(), frames + 1);
  EXPECT_TRUE(running->failed.ok());
}

TEST_F(DeploymentTest, AResizeBelowWhatWasPromisedIsRefusedAndChangesNothing) {
  MakeReady();
  const auto running = Submit("r1", 200, 100);
  const absl::Status status = deployment_.Resize(MakePlan(8), MakeOptions(128));
  EXPECT_EQ(ReasonOf(status), "KV_IN_USE");
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(host_.TakeLoads("a").empty());
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 512u);
}

TEST_F(DeploymentTest, AResizeThatFailsOnANodeIsUndone) {
  MakeReady();
  const auto running = Submit("r1", 10, 10);
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  const uint64_t epoch = deployment_.plan().epoch();
  Progress("a", v1::LoadProgress::PHASE_READY, epoch);
  Progress("b", v1::LoadProgress::PHASE_FAILED, epoch);
  EXPECT_EQ(deployment_.state(), DeploymentState::kResizing);
  EXPECT_EQ(ReasonOf(deployment_.resize_problem()), "MEMORY_LIMIT");
  EXPECT_GT(deployment_.plan().epoch(), epoch);
  EXPECT_EQ(host_.TakeLoads("b").back().kv_pages(0), 32u);
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 512u);
  EXPECT_EQ(host_.records_asked, 1);
  BothReady();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  BothAckAndLink();
  Commit(OpenResults(), 32);
  EXPECT_TRUE(running->failed.ok());
  EXPECT_EQ(deployment_.load_options().kv_tokens(), 512u);
  EXPECT_EQ(ReasonOf(deployment_.resize_problem()), "MEMORY_LIMIT") << "for who waits";
}

TEST_F(DeploymentTest, ANodeLostWhileResizingLeavesTheKnownSize) {
  MakeReady();
  const auto running = Submit("r1", 10, 10);
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  deployment_.OnNodeLost("a");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(ReasonOf(running->failed), "NODE_LOST");
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 512u);
  EXPECT_EQ(host_.records_asked, 1);
  host_.TakeLoads("b");
  deployment_.Load({{"a", 21}, {"b", 12}});
  EXPECT_EQ(host_.TakeLoads("b")[0].kv_pages(0), 32u);
}

TEST_F(DeploymentTest, ALinkThatOpensTooLateIsClosed) {
  Load();
  BothReady();
  Ack("a", 1);
  Ack("b", 1);
  deployment_.OnNodeLost("b");
  host_.OpenLast();
  EXPECT_EQ(host_.links_open, 0);
}

TEST_F(DeploymentTest, UnloadingEndsSessionsWithItsReason) {
  MakeReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.Unload(Error(absl::StatusCode::kAborted, "UNLOADED", "unloaded"));
  EXPECT_EQ(ReasonOf(sink->failed), "UNLOADED");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
}

}  // namespace
}  // namespace strata
