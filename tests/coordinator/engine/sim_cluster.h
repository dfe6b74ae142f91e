// An engine and its stages on one thread: links are queues, time is a number. Tests decide what
// moves when; nothing here is random.
#ifndef STRATA_TESTS_COORDINATOR_ENGINE_SIM_CLUSTER_H_
#define STRATA_TESTS_COORDINATOR_ENGINE_SIM_CLUSTER_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fingerprint.h"
#include "coordinator/engine/engine.h"

namespace strata {

// What the cluster needs of a stage, fake or real.
class SimStage {
 public:
  // std::monostate: discarded.
  using Output = std::variant<std::monostate, StepMessage, ResultMessage>;
  virtual ~SimStage() = default;
  virtual absl::StatusOr<Output> Step(StepMessage frame) = 0;
  virtual absl::Status Fence(uint64_t epoch) = 0;
  // Loses all state and waits for the next fence.
  virtual void Restart() = 0;
  virtual size_t sequences() const = 0;
};

// The token that follows `tokens`: a hash of every (position, token).
uint32_t OracleToken(const std::vector<uint32_t>& tokens, uint32_t vocab);
// What a session with this prompt must generate.
std::vector<uint32_t> OracleAnswer(std::vector<uint32_t> prompt, uint32_t tokens, uint32_t vocab);

// Checks frames by the step rule and keeps only token lists.
class FakeStage : public SimStage {
 public:
  FakeStage(const EngineConfig& config, uint32_t stage);
  absl::StatusOr<Output> Step(StepMessage frame) override;
  absl::Status Fence(uint64_t epoch) override;
  void Restart() override;
  size_t sequences() const override { return sequences_.size(); }

  // Loses sequences without anybody's knowledge; their pages too.
  void Forget() { sequences_.clear(); }
  // Pages that vanish from its free counts.
  uint64_t leaked_pages = 0;
  double fixed_ms = 1;
  double row_ms = 0.1;
  // May set an item's error, as if this stage had rejected it.
  std::function<void(v1::StepItem* item)> before_item;

 private:
  using Name = std::pair<std::string, uint64_t>;
  struct State {
    std::vector<uint32_t> tokens;
    v1::SequenceParams params;
    Fingerprint FingerprintAt(Fingerprint root, size_t length) const;
  };
  absl::Status RunCommand(const v1::StepCommand& command, std::vector<Name>* named);
  absl::Status RunItem(const v1::StepItem& item);
  void ReportKv(v1::StageKv* kv, uint32_t rows) const;
  ResultMessage MakeResult(const StepMessage& frame) const;
  void FillItem(const v1::StepItem& item, v1::ItemResult* result,
                std::vector<float>* payload) const;

  const EngineConfig config_;
  const uint32_t stage_;
  const Fingerprint root_;
  std::map<Name, State> sequences_;
  uint64_t newest_generation_ = 0;
  uint64_t epoch_ = 0;
  uint64_t last_step_ = 0;
};

struct SinkRecord : SessionSink {
  void OnStarted(const StartedInfo& info) override;
  void OnRows(const RowsInfo& rows) override;
  void OnNumericsClass(const std::string& name) override {
    classes.emplace_back(tokens.size(), name);
  }
  Verdict OnToken(const TokenInfo& token) override;
  void OnDone(const FinishInfo& info) override;
  void OnFailed(const absl::Status& status) override;

  bool ended() const { return done.has_value() || failed.has_value(); }

  std::optional<StartedInfo> started;
  std::vector<uint32_t> tokens;
  std::vector<std::pair<size_t, std::string>> classes;  // With the tokens before each.
  std::vector<v1::TokenLogprob> prompt_logprobs;
  std::vector<float> logits;
  std::vector<std::vector<uint64_t>> layer_digests;  // By layer and position.
  uint32_t next_row = 0;
  std::optional<uint32_t> stop_after;  // Verdict::kStop with this many tokens.
  std::optional<FinishInfo> done;
  std::optional<absl::Status> failed;
};

// What the end of a link at "node1" reports.
absl::Status BrokenLink();

class SimCluster : public EngineHost {
 public:
  using StageFactory = std::function<std::unique_ptr<SimStage>(const EngineConfig&, uint32_t)>;

  // Fake stages without a factory. Not started.
  explicit SimCluster(EngineConfig config, const StageFactory& factory = {});
  ~SimCluster() override = default;

  void SendStep(StepMessage step) override;
  void SendFence(uint64_t epoch) override;
  std::vector<std::string> UnfencedNodes() const override { return unfenced; }
  bool PlacesElsewhere(const absl::Status& why) override {
    placed_elsewhere.push_back(why);
    return places_elsewhere;
  }

  Engine& engine() { return *engine_; }
  const EngineConfig& config() const { return config_; }
  FakeStage& fake(uint32_t stage) { return dynamic_cast<FakeStage&>(*stages_[stage]); }
  SimStage& stage(uint32_t stage) { return *stages_[stage]; }
  uint32_t stage_count() const { return static_cast<uint32_t>(stages_.size()); }
  TimePoint now() const { return now_; }
  EngineSnapshot Snapshot() { return engine_->Snapshot(now_); }
  // Of the live session with this request id; "ended": there is none.
  std::string StateOf(const std::string& request_id);

  void Start() { engine_->Start(now_); }
  // Gives the pending fence to every stage and tells the engine; false if there is none.
  bool AcknowledgeFence();
  // Moves one frame through `stage` (stage_count(): one result to the engine); false if there is
  // none.
  bool Deliver(uint32_t stage);
  // Moves frames and fences until nothing moves.
  void Settle();
  // Settles, and lets time pass to the next wake, until no session is left.
  void RunToEnd();
  // Without telling the engine.
  void PassTime(nanoseconds by) { now_ += by; }
  void Advance(nanoseconds by) {
    now_ += by;
    engine_->Tick(now_);
  }

  // The engine is told that a link of its epoch broke.
  void BreakLink() { engine_->OnLinkFault(engine_->epoch(), BrokenLink(), now_); }

  std::shared_ptr<SinkRecord> Submit(SessionRequest request);
  absl::Status TrySubmit(SessionRequest request, std::shared_ptr<SinkRecord> sink) {
    return engine_->Submit(std::move(request), std::move(sink), now_);
  }

  // Suspends the engine; frames under way stay under way.
  void Suspend(uint64_t pages);
  // The same for as many stages, on other nodes, in another numerics class if one is named; frames
  // under way are lost.
  void SuspendToMove(uint32_t stages, uint64_t pages, const std::string& numerics_class = "");
  // The stages are elsewhere with all they have; frames under way are lost.
  void Repoint();
  void ResumeInPlace();
  // Fresh stages of the last Suspend, and the fence of a new epoch.
  void Resume();

  // Fails the test unless no page and no sequence is left anywhere.
  void ExpectEmpty();
  // Fails the test unless every component's sum holds.
  void ExpectSums();

  std::vector<std::deque<StepMessage>> links;
  std::deque<ResultMessage> results;
  std::optional<uint64_t> pending_fence;
  std::vector<std::string> unfenced;
  bool places_elsewhere = false;               // What the engine is told,
  std::vector<absl::Status> placed_elsewhere;  // and what it asked with.
  std::vector<v1::StepFrame> sent;             // Headers of all frames.
  bool record_frames = true;

 private:
  EngineConfig config_;
  const StageFactory factory_;
  SequenceNumbers sequence_numbers_;
  std::vector<std::unique_ptr<SimStage>> stages_;
  std::unique_ptr<Engine> engine_;
  TimePoint now_ = std::chrono::seconds(1000);
  uint64_t newest_fence_ = 0;
};

// A deployment of `stages` stages with `pages` pages each.
EngineConfig MakeConfig(uint32_t stages, uint64_t pages = 64);
SessionRequest MakeRequest(const std::string& id, uint32_t prompt_tokens, uint32_t max_tokens);

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_ENGINE_SIM_CLUSTER_H_
