// The workers of a large cluster: which pipeline each one serves, which are away, and where a
// pipeline's layers go when one is lost. The planner that ships decides.
#ifndef STRATA_TESTS_SIM_SCALE_MACHINES_H_
#define STRATA_TESTS_SIM_SCALE_MACHINES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/planner/planner.h"
#include "strata/v1/types.pb.h"

namespace strata::sim {

// One thread.
class ScaleMachines {
 public:
  // Pipelines of `stages` workers each, whose pools hold `kv_tokens`; the other workers are spare.
  // A worker has memory for a stage and no more.
  ScaleMachines(uint32_t workers, uint32_t pipelines, uint32_t stages, uint64_t kv_tokens);

  const v1::Plan& plan(uint32_t pipeline) const { return plans_[pipeline]; }
  bool away(uint32_t worker) const { return workers_[worker].away; }

  // It is gone from now on. The pipeline that it served, if it was none of the spare ones.
  std::optional<uint32_t> Lose(uint32_t worker);
  // It is back, and spare.
  void Return(uint32_t worker);
  // Other workers for what a pipeline has lost.
  absl::Status Replace(uint32_t pipeline);

  double planning_s() const { return planning_s_; }  // Of processor time, in all.

 private:
  struct Worker {
    std::optional<uint32_t> pipeline;  // That it serves.
    bool away = false;
  };

  static std::string NameOf(uint32_t worker);
  static uint32_t NumberOf(const std::string& name);
  // Those that are there, as they are for this pipeline.
  std::vector<PlannerNode> NodesFor(uint32_t pipeline) const;

  PlannerModel model_;
  PlannerRequest request_;
  uint64_t worker_bytes_ = 0;
  std::vector<Worker> workers_;
  std::vector<std::vector<PlannerLink>> links_;  // Of the last plan's cluster.
  std::vector<v1::Plan> plans_;                  // By pipeline.
  double planning_s_ = 0;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SCALE_MACHINES_H_
