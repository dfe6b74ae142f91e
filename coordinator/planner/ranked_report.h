// A chain of groups as a plan, with the sentences that say why. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_RANKED_REPORT_H_
#define STRATA_COORDINATOR_PLANNER_RANKED_REPORT_H_

#include <cstddef>
#include <vector>

#include "coordinator/planner/asked.h"
#include "coordinator/planner/chain_search.h"
#include "coordinator/planner/planner.h"
#include "coordinator/planner/rank_groups.h"

namespace strata {

// `candidates`: nodes of the cluster that were to choose from; none where --layers names all.
v1::Plan PlanOfChain(const PlannerCluster& cluster, const PlannerModel& model,
                     const PlannerRequest& request, const AskedKv& kv, const RankGroups& groups,
                     const Chain& chain, const std::vector<size_t>& candidates);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_RANKED_REPORT_H_
