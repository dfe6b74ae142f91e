// The step protocol at one stage: checks frames, runs commands and items on the sequences it
// holds, computes on a Shard, and says what to send on. A core: no thread, clock or socket in it.
#ifndef STRATA_WORKER_RUNNER_SHARD_RUNNER_H_
#define STRATA_WORKER_RUNNER_SHARD_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/frame.h"
#include "worker/backend/backend.h"

namespace strata {

// What a stage's runner must know besides its shard.
struct ShardRunnerConfig {
  std::string node;         // Named in errors.
  uint64_t deployment = 0;
  uint64_t epoch = 0;       // Of the first frames.
  uint32_t stage = 0;
  uint32_t stage_count = 1;
  StageSpec spec;
  std::string weights_digest;
  std::string numerics_class;
};

struct RunnerStats {
  uint64_t frames_computed = 0;
  uint64_t frames_discarded = 0;  // Seen before, or of an old epoch.
  uint64_t items_computed = 0;
  uint64_t items_rejected = 0;
  uint64_t sequences = 0;
};

class ShardRunner {
 public:
  // A frame that was seen already, or is of an older epoch: nothing to send.
  struct Discarded {};
  // To the next stage, or, from the last one, to the coordinator.
  using Output = std::variant<Discarded, StepMessage, ResultMessage>;

  // Does not take the clock or shard; both outlive it.
  ShardRunner(ShardRunnerConfig config, Shard* shard, const Clock* clock);
  ~ShardRunner();

  // Runs one step. An error breaks the link that the frame came on and is reported as a LinkFault
  // (gap in the steps, an epoch newer than any loaded, a frame of another deployment, a payload of
  // the wrong size); no state was changed. Errors of items and commands are in the output.
  absl::StatusOr<Output> Step(StepMessage frame);

  // From now on only frames of `epoch` are computed, beginning at step 1 with `resync`. Older
  // epochs than the present one are FAILED_PRECONDITION; the same one is ok and does nothing.
  absl::Status Fence(uint64_t epoch);

  // The coordinator's lease lapsed: every sequence is dropped.
  void DropAllSequences();

  RunnerStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_SHARD_RUNNER_H_
