// One runner, driven without a network: as the coordinator and the stages beside it would.
#ifndef STRATA_WORKER_SERVICE_BENCH_DRIVER_H_
#define STRATA_WORKER_SERVICE_BENCH_DRIVER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/fingerprint.h"
#include "worker/runner/shard_runner.h"

namespace strata {

// Speaks the step protocol to one runner. One thread.
class BenchDriver {
 public:
  // A sequence as the runner has it, and the token that comes next.
  struct Sequence {
    v1::SequenceName name;
    uint32_t length = 0;
    Fingerprint fingerprint = 0;
    uint32_t next_id = 3;
  };

  // `spec`, `shard` (not owned) and `clock` outlive it.
  BenchDriver(const StageSpec& spec, Shard* shard, const Clock* clock)
      : spec_(spec), clock_(clock), runner_(Config(spec), shard, clock) {}

  Sequence NewSequence();

  // Runs `tokens` more of each sequence: a prompt's chunk, or one decode step. The seconds that it
  // took; the runner's error, also one of an item.
  absl::StatusOr<double> Step(const std::vector<Sequence*>& sequences, uint32_t tokens);

  // Another sequence with the tokens of `source`, whose pages it shares.
  absl::StatusOr<Sequence> Fork(const Sequence& source);

  // Gives back its pages.
  absl::Status Release(const Sequence& sequence);

 private:
  static ShardRunnerConfig Config(const StageSpec& spec);

  static v1::SequenceParams Params();

  StepMessage NewFrame();

  // Errors of items and commands, and the sampled ids.
  static absl::Status Take(const ShardRunner::Output& output,
                           const std::vector<Sequence*>& sequences);

  const StageSpec& spec_;
  const Clock* const clock_;
  ShardRunner runner_;
  uint64_t step_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_BENCH_DRIVER_H_
