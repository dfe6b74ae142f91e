// The host of one loaded stage of a worker: does with simulated links what StageEpochs decides.
// Frames that come in are computed by ShardRunner in the order that StepQueue gives, page tables
// included, over the hash arithmetic, and go out on the link to the next stage. Threads and sockets
// are all that worker/service/shard_host.h and compute_queue.h have besides.
#ifndef STRATA_TESTS_SIM_SIM_STAGE_H_
#define STRATA_TESTS_SIM_SIM_STAGE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/frame.h"
#include "strata/v1/membership.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/stage_device.h"
#include "worker/node/stage_epochs.h"
#include "worker/node/step_queue.h"
#include "worker/runner/carry_rounds.h"
#include "worker/runner/page_layers.h"
#include "worker/runner/shard_runner.h"

namespace strata::sim {

// What the load of a stage says, with room for what meddlers add.
StageSpec StageSpecOf(const Scenario& scenario, const v1::Load& load);

// One life of a worker, which its stages do not outlive.
struct WorkerLife {
  Cluster* cluster = nullptr;
  Machine machine = 0;
  std::string name;
  uint64_t incarnation = 0;

  void TellCoordinator(std::function<void()> arrives) const;
  // On the control stream, and the stream's end.
  void Say(v1::WorkerMessage message) const;
  void EndStream() const;
};

class SimStage {
 public:
  // Runs `what` on the stage: at once, once a stall is over, or never if it is gone by then.
  using ReachFn = std::function<void(const std::function<void(SimStage*)>& what)>;

  SimStage(const WorkerLife& life, const v1::Load& load, ReachFn reach);
  ~SimStage() { device_.End(); }
  SimStage(const SimStage&) = delete;
  SimStage& operator=(const SimStage&) = delete;

  uint64_t deployment() const { return load_.deployment(); }
  // Of the newest fence that was done.
  uint64_t epoch() const { return epochs_.epoch(); }

  void Fence(const v1::Fence& fence);
  // The stage before, or the coordinator, wants to open its link.
  void Accept(const v1::LinkOpen& open, std::function<void(const absl::Status&)> answer);
  // On whichever link is open: a copy that comes late is handed to whoever is there.
  void Take(std::shared_ptr<const StepMessage> frame);
  // The link that comes in breaks, if it is of this epoch.
  void BreakInbound(uint64_t epoch, const absl::Status& status);
  // Gives KV to the stage that is to take its place, part by part; `answer` may not arrive.
  using KvParts = absl::StatusOr<std::vector<v1::CarryKvPart>>;
  using KvAnswerFn = std::function<void(const KvParts& parts)>;
  void GiveKv(const v1::CarryKvRequest& request, bool begins, const KvAnswerFn& answer);
  // The next stage broke the link onward of `epoch`.
  void OnOnwardBroken(uint64_t epoch, const absl::Status& status);
  // It is being unloaded: nothing goes in or out any more.
  void Stop();
  // Ranks compute a step, or join: it is not to end before they have.
  bool busy() const { return device_.busy(); }
  std::shared_ptr<RankOwner> rank_owner() const { return device_.owner(); }

  // Faults of state and device. FlipBit: false where there is nothing to damage.
  bool FlipBit(uint64_t random);
  void FailBackend();
  void Poison(uint64_t random);
  void SpoilLayer(uint32_t layer) { device_.SpoilLayer(layer); }
  void FailAtPoison() { device_.FailAtPoison(); }

  // What it holds.
  uint64_t frames_discarded() const { return runner_.stats().frames_discarded; }
  size_t sequences() const { return runner_.stats().sequences; }
  uint64_t pages_in_use() const;

 private:
  using Queue = StepQueue<std::shared_ptr<const StepMessage>>;
  struct StepClock : Clock {
    TimePoint Now() const override { return now += std::chrono::microseconds(100); }
    mutable TimePoint now{0};
  };

  World& world() const { return *life_.cluster->world; }
  void After(nanoseconds delay, const std::function<void(SimStage*)>& what);
  // Does what is due.
  void Drive();
  void Begin(const FenceStep& step);
  void FenceRunner();
  void OnRunnerFenced(const absl::Status& status);
  void BeatAgain();
  void Dial(const FenceStep& step);
  void OnDialed(uint64_t dial, const absl::Status& status);
  void Carry(const FenceStep& step);
  void AskForKv();
  void OnKv(uint64_t id, uint32_t source, KvParts parts);
  void EndCarrying(uint64_t id, bool carried);
  void JudgeWaiting();
  void EndInbound(const v1::LinkOpen& inbound, const absl::Status& why);
  void Tell(const std::optional<v1::LinkFault>& fault) const;
  void ComputeNext();
  void Compute(const std::shared_ptr<const StepMessage>& frame);
  void OnComputed(const StepMessage& frame, const RunnerStats& before,
                  absl::StatusOr<ShardRunner::Output> output);
  void OnStepFailed(const StepMessage& frame, const absl::Status& why);
  void EndStep();
  // What computing it takes.
  nanoseconds TimeOf(const v1::StepFrame& frame) const;
  void SendOn(ShardRunner::Output output);
  void CountErrors(const ShardRunner::Output& output);
  void CountError(const v1::ErrorDetail& error);

  const WorkerLife life_;
  const v1::Load load_;
  const StageSpec spec_;
  Machine next_;
  Machine ahead_next_ = 0;  // Of links that are opened ahead.
  uint64_t next_incarnation_;
  const ReachFn reach_;
  StepClock clock_;
  StageDevice device_;
  ShardRunner runner_;
  SequenceTable& table_;  // The runner's.
  StageEpochs epochs_;
  struct WaitingLink {
    v1::LinkOpen open;
    TimePoint since{0};
    std::function<void(const absl::Status&)> answer;
  };
  std::vector<WaitingLink> waiting_;  // For the fences of their epochs.
  v1::LinkOpen inbound_;              // Whose link epochs_.inbound() is.
  v1::LinkOpen ahead_inbound_;        // And epochs_.ahead_inbound().
  std::optional<uint64_t> fencing_;   // Begins once the step at hand is computed.
  bool adopts_inbound_ = false;       // It does.
  uint64_t dials_ = 0;
  struct Carrying {
    uint64_t id = 0;
    FenceStep step;
    CarryRounds rounds = {};
    std::map<uint32_t, LayerRange> layers = {};  // Of what sources give.
    std::vector<uint32_t> turn = {};             // Sources of the round that are yet to be asked.
  };
  std::optional<Carrying> carrying_;
  uint64_t carries_ = 0;
  uint64_t parts_ = 0;  // Of KV that came.
  Queue queue_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_STAGE_H_
