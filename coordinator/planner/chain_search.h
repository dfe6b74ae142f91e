// Which groups of nodes have which layers. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_CHAIN_SEARCH_H_
#define STRATA_COORDINATOR_PLANNER_CHAIN_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/planner/placement_problem.h"
#include "coordinator/planner/rank_groups.h"

namespace strata {

// Stages on groups; `node` of a stage is the number of its group.
struct Chain {
  std::vector<PlacedStage> stages;
  uint64_t pages = 0;
  double latency_ms = kNever;
  double slowest_ms = kNever;  // The slowest stage or transfer.
};

// Takes groups or leaves them out in their order: what is found is the best of these chains.
class ChainSearch {
 public:
  // `groups` outlive it.
  ChainSearch(const RankGroups& groups, uint32_t layers, v1::PlanGoal goal)
      : groups_(groups), layers_(layers), goal_(goal) {}

  // With so many KV pages, and for capacity with as many as fit; none: no chain fits.
  std::optional<Chain> Run(uint64_t pages) const;
  // Stages that are given, which fit with so many pages, likewise.
  Chain Given(std::vector<PlacedStage> stages, uint64_t pages) const;

 private:
  struct State {
    double cost = kNever;
    size_t before = 0;  // The group before, and the layers up to it.
    uint32_t begin = 0;
  };

  Chain Timed(std::vector<PlacedStage> stages, uint64_t pages) const;
  std::optional<Chain> With(uint64_t pages) const;
  // The cheapest way to come to a group with the layers up to `begin` placed before it.
  State Entry(const std::vector<std::vector<State>>& states, size_t g, uint32_t begin) const;
  double Joined(double cost, double more) const;
  double Hop(size_t from, size_t to) const;
  uint64_t MostPages() const;

  const RankGroups& groups_;
  const uint32_t layers_;
  const v1::PlanGoal goal_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_CHAIN_SEARCH_H_
