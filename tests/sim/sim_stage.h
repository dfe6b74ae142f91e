// One loaded stage of a worker: frames that come in are computed one after another by the real
// ShardRunner, page tables included, over the hash arithmetic, and go out on the link to the next
// stage. It does as worker/service/{shard_host,compute_queue} do.
#ifndef STRATA_TESTS_SIM_SIM_STAGE_H_
#define STRATA_TESTS_SIM_SIM_STAGE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/frame.h"
#include "strata/v1/membership.pb.h"
#include "tests/sim/cluster.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/runner/shard_runner.h"

namespace strata::sim {

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
  void AcknowledgeFence(uint64_t deployment, uint64_t epoch, const absl::Status& status) const;
};

class SimStage {
 public:
  // Runs `what` on the stage that the worker has of this deployment: at once, once a stall is over,
  // or never if it has none then, or another life.
  using ReachFn = std::function<void(const std::function<void(SimStage*)>& what)>;

  SimStage(const WorkerLife& life, const v1::Load& load, ReachFn reach);
  SimStage(const SimStage&) = delete;
  SimStage& operator=(const SimStage&) = delete;

  // Of the newest fence that was done.
  uint64_t epoch() const { return epoch_; }

  void Fence(uint64_t epoch);
  void Take(const std::shared_ptr<const StepMessage>& frame);
  // Tells the coordinator that the links of `epoch` are broken.
  void Report(uint64_t epoch, const absl::Status& status);

  // Faults of state and device. FlipBit: false where there is nothing to damage.
  bool FlipBit(uint64_t random);
  void FailBackend();
  void Poison(uint64_t random);
  void FailAtPoison() { shard_.FailAtToken(kPoisonToken); }

  // What it holds.
  size_t sequences() const { return runner_.stats().sequences; }
  uint64_t pages_in_use() const;

 private:
  struct StepClock : Clock {
    TimePoint Now() const override { return now += std::chrono::microseconds(100); }
    mutable TimePoint now{0};
  };

  World& world() const { return *life_.cluster->world; }
  void After(nanoseconds delay, const std::function<void(SimStage*)>& what);
  void Dial(uint64_t epoch, TimePoint deadline);
  void OnDialed(uint64_t epoch, bool accepted, TimePoint deadline);
  void ComputeNext();
  void Compute(const StepMessage& frame);
  // What computing it takes.
  nanoseconds TimeOf(const v1::StepFrame& frame) const;
  void SendOn(ShardRunner::Output output);
  void CountErrors(const ShardRunner::Output& output);
  void CountError(const v1::ErrorDetail& error);

  const WorkerLife life_;
  const v1::Load load_;
  const StageSpec spec_;
  const Machine next_;
  const ReachFn reach_;
  StepClock clock_;
  testing::HashShard shard_;
  ShardRunner runner_;
  SequenceTable& table_;  // The runner's.
  uint64_t epoch_ = 0;
  uint64_t wanted_epoch_ = 0;  // Of the newest fence that was asked for.
  uint64_t onward_epoch_ = 0;  // Of the open link to the next stage.
  uint64_t faulted_ = 0;       // Newest epoch whose fault was reported.
  std::deque<std::shared_ptr<const StepMessage>> queue_;
  bool computing_ = false;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_STAGE_H_
