// Machines that need not exist, as the planner sees a cluster.
#ifndef STRATA_COORDINATOR_PLANNER_MACHINES_H_
#define STRATA_COORDINATOR_PLANNER_MACHINES_H_

#include "absl/status/statusor.h"
#include "coordinator/planner/planner.h"
#include "strata/v1/planning.pb.h"

namespace strata {

inline constexpr int kMaxPlannedMachines = 1024;

// The cluster of a request's machines; its model and options are not looked at. Processors and CUDA
// devices are of one numerics, "cpu", and those of "mlx" of another. INVALID_ARGUMENT
// (BAD_MACHINES) names the machine and what is wrong with it.
absl::StatusOr<PlannerCluster> ClusterOfMachines(const v1::PlanMachinesRequest& request);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_MACHINES_H_
