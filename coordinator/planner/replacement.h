// Where a placed model's layers go when nodes that held some are gone, or are to be freed. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_REPLACEMENT_H_
#define STRATA_COORDINATOR_PLANNER_REPLACEMENT_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/planner/planner.h"
#include "strata/v1/types.pb.h"

namespace strata {

// What a node's cache lacks of a layer.
struct CachedLayer {
  uint64_t fetched_bytes = 0;  // That a load of it there would fetch.
  bool packed = false;         // It would not even pack anything.
};
// By node, of each layer. All is missing of a node that is not there.
using NodeCaches = std::map<std::string, std::vector<CachedLayer>>;

struct ReplacementRequest {
  v1::Plan before;
  std::vector<PlannerNode> nodes;     // That are left.
  std::vector<uint64_t> layer_bytes;  // PlannerModel's.
  NodeCaches caches = {};
  // What the model is placed with; nodes and layers that it names bind no longer.
  v1::LoadOptions options;
  // Nodes that are left keep their layers, where any such plan fits.
  bool in_place = false;
  // Where there is no plan in the class of before, one in another will do: sessions go on with what
  // that computes.
  bool other_class = false;
  // MakePlan with these options over `nodes`, or what else makes a plan of them.
  std::function<absl::StatusOr<v1::Plan>(const v1::LoadOptions& options)> plan;
};

// Of the plans in the numerics class of before that the planner predicts at least 80 % of the best
// one's tokens a second for, the one by which the fewest bytes of weights travel, and then the
// fewest are packed: with another node in the place of each lost one, with the layers of one lost
// node at its neighbours', or placed anew. With options.standby the fastest of those that move and
// pack nothing, however fast, if there are any. Where there are none in that class and
// `other_class`, the same of those in others. Where there is no plan, why placing anew fails.
absl::StatusOr<v1::Plan> PlanReplacement(const ReplacementRequest& request);

// A plan made anew in the numerics class of before, where the planner predicts at least 20 % more
// tokens a second for it than for what runs, both over these nodes; or where options.ranks asks for
// ranks, and what runs has none. nullopt: what runs is good enough. Errors: `plan`'s.
absl::StatusOr<std::optional<v1::Plan>> PlanBetter(const ReplacementRequest& request);

// What comes to nodes that did not hold it.
struct Movement {
  uint64_t fetched_bytes = 0;
  uint64_t packed_bytes = 0;
  auto operator<=>(const Movement&) const = default;
};

// Of layers that `after` has on nodes on which `before` has not.
Movement MovementOf(const v1::Plan& before, const v1::Plan& after,
                    const std::vector<uint64_t>& layer_bytes, const NodeCaches& caches);
// The same where nobody's cache has anything.
uint64_t MovedBytes(const v1::Plan& before, const v1::Plan& after,
                    const std::vector<uint64_t>& layer_bytes);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_REPLACEMENT_H_
