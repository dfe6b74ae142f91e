// Stages that ranks of this process compute on its CPU.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_CPU_RANKS_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_CPU_RANKS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/cpu/shard/cpu_shard.h"

namespace strata::cpu {

// What is the same for all stages over the same ranks.
struct ShardRanks {
  std::vector<OutputRange> shares;                 // Of each rank; at least two.
  std::vector<std::shared_ptr<ThreadPool>> pools;  // Of each rank, none shared with another.
  // Whether all threads have a core each: else none spins.
  bool own_cores = false;
};

// A RankedShard of CpuShards. `spec` was found supported. RESOURCE_EXHAUSTED when memory is short
// for all.
absl::StatusOr<std::unique_ptr<Shard>> LoadOverRanks(
    const StageSpec& spec, const ShardRanks& ranks, const TensorSource& source, PackedStore* packed,
    const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_CPU_RANKS_H_
