// A real worker core under the simulated cluster: ShardRunner on a HashShard, whose tokens come
// out wrong if one entry of one page is not the request's own.
#ifndef STRATA_TESTS_COORDINATOR_ENGINE_RUNNER_STAGE_H_
#define STRATA_TESTS_COORDINATOR_ENGINE_RUNNER_STAGE_H_

#include <memory>

#include "tests/coordinator/engine/sim_cluster.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/runner/shard_runner.h"

namespace strata {

class RunnerStage : public SimStage {
 public:
  // Stage `stage` of `model`, whose layers are cut as evenly as they go.
  RunnerStage(const EngineConfig& config, const ModelSpec& model, uint32_t stage);

  absl::StatusOr<Output> Step(StepMessage frame) override;
  absl::Status Fence(uint64_t epoch) override { return runner_->Fence(epoch); }
  void Restart() override;
  size_t sequences() const override { return runner_->stats().sequences; }

  // Says that a step takes fixed_ms, and row_ms for each row, or as much of that as it has of the
  // layers; before: 1 ms.
  void SetCosts(double fixed_ms, double row_ms);

  ShardRunner& runner() { return *runner_; }
  testing::HashShard& shard() { return *shard_; }

 private:
  struct StepClock : Clock {
    TimePoint Now() const override { return now += milliseconds(1); }
    mutable TimePoint now{0};
  };

  double MsOf(const v1::StepFrame& frame) const;

  StepClock clock_;
  double fixed_ms_ = 0;
  double row_ms_ = 0;
  ShardRunnerConfig config_;
  std::unique_ptr<testing::HashShard> shard_;
  std::unique_ptr<ShardRunner> runner_;
};

// A factory of such stages for SimCluster. Configs must have the model's vocabulary and groups.
SimCluster::StageFactory RunnerStages(ModelSpec model);
// The same, with costs.
SimCluster::StageFactory RunnerStages(ModelSpec model, double fixed_ms, double row_ms);

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_ENGINE_RUNNER_STAGE_H_
