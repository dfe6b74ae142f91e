// What stages over several nodes cost: bytes by rank, times, and what ranks gather. Times in ms.
#ifndef STRATA_COORDINATOR_PLANNER_RANK_GROUPS_H_
#define STRATA_COORDINATOR_PLANNER_RANK_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/footprint/rank_footprint.h"
#include "common/model/rank_outputs.h"
#include "coordinator/planner/asked.h"
#include "coordinator/planner/placement_problem.h"
#include "coordinator/planner/planner.h"

namespace strata {

// Nodes that compute stages together, or one that does so alone.
struct RankGroup {
  std::vector<size_t> nodes;        // Of the cluster, the first rank's first.
  std::vector<OutputRange> shares;  // As many, SharesByWeight's.
};

// Of layers [begin, end) on one group. Const once it is made.
class RankGroups {
 public:
  // `cluster` and `model`, which has of_rank, outlive it. Times are those of a step with `rows`
  // rows of one sequence.
  RankGroups(const PlannerCluster& cluster, const PlannerModel& model,
             std::vector<RankGroup> groups, const AskedKv& kv, uint32_t max_batch_tokens,
             uint32_t rows = 1);

  size_t size() const { return groups_.size(); }
  const RankGroup& group(size_t g) const { return groups_[g].of; }
  const PlannerNode& node(size_t g, size_t rank) const {
    return cluster_.nodes[groups_[g].of.nodes[rank]];
  }
  // The groups' first nodes, as which hops and pages are asked of; the coordinator is size().
  const PlacementProblem& firsts() const { return firsts_; }

  // A step's time in a stage, what its ranks gather included, and that alone.
  double StageMs(size_t g, uint32_t begin, uint32_t end) const;
  double GatherMs(size_t g, uint32_t begin, uint32_t end) const;
  // What one rank takes. `stages`: of the plan, 0: as many as there may be.
  uint64_t WeightBytes(size_t g, size_t rank, uint32_t begin, uint32_t end) const;
  uint64_t KvBytes(size_t g, size_t rank, uint32_t begin, uint32_t end, uint64_t pages,
                   size_t stages = 0) const;
  uint64_t RankBytes(size_t g, size_t rank, uint32_t begin, uint32_t end, uint64_t pages) const;
  // Whether each rank's node has the memory, and a host that is limited its own.
  bool Fits(size_t g, uint32_t begin, uint32_t end, uint64_t pages) const;

 private:
  struct Rank {
    std::vector<uint64_t> weights = {0};            // [l]: of layers 0 to l - 1.
    std::vector<std::vector<uint64_t>> pages = {};  // [KV group][l]: one page of those.
    uint64_t embed = 0;
    uint64_t head = 0;
    uint64_t buffers = 0;
    uint64_t last_buffers = 0;
  };
  struct Group {
    RankGroup of;
    std::vector<Rank> ranks;              // Empty: one node alone, as firsts_ has it.
    std::vector<double> layer_ms = {0};   // [l]: layers 0 to l - 1, without gathers.
    std::vector<double> gather_ms = {0};  // Likewise.
    double embed_ms = 0;
    double head_ms = 0;
    double begin_gather_ms = 0;  // Of the rows that a stage begins with.
    double head_gather_ms = 0;
  };
  void AddRanks(const AskedKv& kv, uint32_t max_batch_tokens, Group* group) const;
  void AddLayerTimes(const AskedKv& kv, const std::vector<PlannerWeights>& weights,
                     const std::vector<RankOutputs>& outputs, Group* group) const;
  void AddGathers(Group* group) const;

  const PlannerCluster& cluster_;
  const PlannerModel& model_;
  const uint32_t layers_;
  const uint32_t rows_;
  const PlacementProblem firsts_;
  std::vector<Group> groups_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_RANK_GROUPS_H_
