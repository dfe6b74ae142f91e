// Equal layers given to a fixed set of nodes.
#ifndef STRATA_COORDINATOR_PLANNER_FILL_H_
#define STRATA_COORDINATOR_PLANNER_FILL_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/planner/placement_problem.h"

namespace strata {

// What filling asks again and again about equal layers, looked up.
class Filler {
 public:
  explicit Filler(const PlacementProblem& problem);

  // Compute time of the best split of all layers over `nodes` (distinct, `by_speed` orders them,
  // see below), each holding at least one; the first and last stage are these nodes. kNever if
  // they cannot hold them. Optimal: a layer costs each node the same wherever it is, so that the
  // fastest take as many as they can.
  double Ms(std::span<const size_t> by_speed, size_t first, size_t last) const;
  // The layers of each node of `order` (first to last stage) under that split.
  std::vector<PlacedStage> Stages(std::span<const size_t> order) const;

  // Nodes, the fastest first.
  const std::vector<size_t>& by_speed() const { return by_speed_; }
  uint32_t rank(size_t node) const { return rank_[node]; }
  uint32_t Capacity(size_t node, bool first, bool last) const {
    return capacity_[node][(first ? 1 : 0) + (last ? 2 : 0)];
  }

 private:
  const PlacementProblem& problem_;
  std::vector<std::array<uint32_t, 4>> capacity_;
  std::vector<size_t> by_speed_;
  std::vector<uint32_t> rank_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_FILL_H_
