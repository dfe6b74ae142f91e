// The frames of one stage, computed one after another in the order in which they came.
#ifndef STRATA_WORKER_SERVICE_COMPUTE_QUEUE_H_
#define STRATA_WORKER_SERVICE_COMPUTE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/duration_counts.h"
#include "common/frame.h"
#include "common/mutex.h"
#include "common/rpc/link_service.h"
#include "worker/backend/shard.h"
#include "worker/node/step_queue.h"
#include "worker/runner/shard_runner.h"
#include "worker/service/step_cost.h"

namespace strata {

// What a stage did so far.
struct StageWork {
  uint64_t steps = 0;  // Computed ones, as all here.
  uint64_t rows = 0;
  nanoseconds computed{0};
  nanoseconds waited{0};        // From Add until they were computed.
  uint64_t received_bytes = 0;  // Of frames, as sent_bytes.
  uint64_t sent_bytes = 0;
  DurationCounts step_time;  // Of steps with rows.
};

// Any thread. One thread of its own computes; but a step that will be short is computed by the
// thread that brings it, when nothing else is and the shard waits for nobody: waking another one
// would take longer.
class ComputeQueue {
 public:
  struct Frame {
    StepMessage message;  // Gone once it is computed.
    std::shared_ptr<InboundLink> link;
    TimePoint added{0};  // Add sets it.
    // Once computed.
    uint64_t epoch = 0;
    uint64_t step = 0;
    absl::StatusOr<ShardRunner::Output> output = ShardRunner::Discarded();
  };
  // Takes each frame once it is computed, in their order, on the thread that computed it and
  // without a lock of the queue. The next one begins when it returns. Must not call Stop.
  using DoneFn = std::function<void(Frame frame)>;

  // `shard` is computed under `compute`, which all stages of the process share. `clock` and
  // `compute` outlive the queue.
  ComputeQueue(ShardRunnerConfig config, size_t max_waiting, std::unique_ptr<Shard> shard,
               const Clock* clock, Mutex* compute, DoneFn done);
  ~ComputeQueue();  // Stops.
  ComputeQueue(const ComputeQueue&) = delete;
  ComputeQueue& operator=(const ComputeQueue&) = delete;

  // Computes the frame, here or later. False, and the frame is dropped, when `max_waiting` of them
  // wait already, or after Stop.
  bool Add(Frame frame);

  // Drops the frames that wait.
  void Clear();

  // Shard::BeginEpoch and ShardRunner::Fence, between two steps; sequences whose KV is lost are
  // dropped. Not after Stop.
  absl::Status Fence(uint64_t epoch);

  // Calls `use` with the runner, between two steps; returns what that does. FAILED_PRECONDITION
  // (UNLOADED) after Stop.
  absl::Status BetweenSteps(const std::function<absl::Status(ShardRunner* runner)>& use);

  // Drops the frames that wait, and waits for the one that is being computed and for its DoneFn.
  // The shard, which nobody uses any more; null the second time.
  std::unique_ptr<Shard> Stop();

  RunnerStats stats() const;
  StageWork work() const;
  size_t waiting() const;  // Frames.
  // Another number for each step that is being computed; 0: none is.
  uint64_t step_at_hand() const;
  bool held_up() const;  // Shard::IsHeldUp.
  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  void Loop();
  bool ComputeHere(Frame* frame);
  void Step(Frame* frame) STRATA_REQUIRES(runner_mutex_, compute_);
  // Tells the coordinator what the step took besides computing, and counts it.
  void Note(Frame* frame, uint32_t rows, bool computes, nanoseconds waited,
            uint64_t received_bytes);
  // The thread that had a frame at hand has it no more.
  void TellIdle() STRATA_REQUIRES(mutex_);

  const DoneFn done_;
  const Clock* const clock_;
  std::unique_ptr<Shard> shard_;  // Until Stop, as runner_.
  const uint64_t memory_bytes_;
  const bool may_compute_here_;  // On the thread that brings a step.
  // Steps and fences take turns. Taken before `compute_`, never with `mutex_` held.
  Mutex runner_mutex_;
  std::optional<ShardRunner> runner_;
  Mutex* const compute_;

  mutable Mutex mutex_;
  CondVar changed_;                                    // queue_.
  RunnerStats final_stats_ STRATA_GUARDED_BY(mutex_);  // After Stop.
  StepQueue<Frame> queue_ STRATA_GUARDED_BY(mutex_);   // At hand: some thread has the frame.
  bool computing_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t steps_begun_ STRATA_GUARDED_BY(mutex_) = 0;
  StepCost cost_ STRATA_GUARDED_BY(mutex_);
  StageWork work_ STRATA_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_COMPUTE_QUEUE_H_
