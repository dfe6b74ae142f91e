#include "coordinator/planner/no_room.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/planner/feasibility.h"
#include "coordinator/planner/plan_words.h"

namespace strata {
namespace {

// What a problem lacks: the weights, KV and buffers of all layers on one node.
struct Needs {
  uint64_t weights = 0;
  uint64_t kv = 0;
  uint64_t buffers = 0;
  uint64_t free = 0;  // On all nodes.
};

// The devices have the memory, and their hosts have not.
absl::Status HostsTooSmall(const PlacementProblem& problem) {
  const auto missing = [&](size_t of) {
    const uint64_t needed = problem.HostBytes(of, 0, problem.layers());
    return needed > problem.node(of).host_free_bytes ? needed - problem.node(of).host_free_bytes
                                                     : uint64_t{0};
  };
  size_t node = 0;
  for (size_t i = 0; i < problem.nodes(); ++i) {
    node = missing(i) > missing(node) ? i : node;
  }
  return HostTooSmall(problem, {node, 0, problem.layers()});
}

// Why there is no room for any KV, of all nodes together or in whatever split.
std::string WhyNoKvFits(const PlacementProblem& problem, const Needs& needs, uint32_t sessions) {
  const uint64_t least_pages = 1 + sessions;
  const uint64_t least_kv = problem.LeastKvBytes(least_pages);
  if (needs.weights > needs.free) {
    return "the weights alone do not fit";
  }
  const std::string besides =
      absl::StrCat(FormatSize(needs.free - needs.weights), " besides the weights");
  if (needs.weights + needs.buffers > needs.free) {
    return absl::StrCat("the weights fit, but ", besides, " are too little for the ",
                        FormatSize(needs.buffers), " of buffers that computing takes");
  }
  if (needs.weights + needs.buffers + least_kv > needs.free) {
    return absl::StrCat("the weights fit, but ", besides, " are too little for ",
                        FormatSize(needs.buffers), " of buffers and ", FormatSize(least_kv),
                        " of KV, the least that ", sessions,
                        sessions == 1 ? " session takes" : " sessions take");
  }
  return absl::StrCat("all nodes together have enough, but no split of the layers fits, since ",
                      "each node that takes part needs its own buffers (",
                      FormatSize(needs.buffers), " with the head) and holds whole layers");
}

}  // namespace

NoRoom WhyNoRoom(const PlacementProblem& counted, uint64_t kv_tokens, uint32_t sessions) {
  const PlacementProblem problem = counted.WithoutHostMemory();
  if (Feasible(problem).feasible) {
    return {.error = HostsTooSmall(counted)};
  }
  const uint32_t layers = problem.layers();
  size_t largest = 0;
  Needs needs;
  for (size_t i = 0; i < problem.nodes(); ++i) {
    largest = problem.node(i).free_bytes > problem.node(largest).free_bytes ? i : largest;
    needs.free += problem.node(i).free_bytes;
  }
  needs.weights = problem.WeightBytes(largest, 0, layers);
  needs.kv = problem.KvBytes(largest, 0, layers, problem.pages);
  needs.buffers = problem.StageBytes(largest, 0, layers) - needs.weights - needs.kv;
  const uint64_t missing = MissingBytes(problem, largest);
  bool exact = true;
  const auto pages = MostPages(problem, 1 + sessions, &exact);
  const std::string hint =
      pages ? absl::StrCat("add a node, or lower --kv-tokens (", (*pages - sessions) * kPageTokens,
                           " would fit), --context or --sessions")
            : absl::StrCat("add a node, or free memory on one: ",
                           WhyNoKvFits(problem, needs, sessions));
  const PlannerNode& node = problem.node(largest);
  return {
      .error = Error(absl::StatusCode::kResourceExhausted, "MODEL_DOES_NOT_FIT",
                     absl::StrCat("the model does not fit: ", FormatSize(missing),
                                  " are missing, even if all of them were on node ", node.name,
                                  ", which has most", FilledFirst(problem, {largest, 0, layers}),
                                  "; it has ", FormatSize(needs.weights), " of weights, ",
                                  FormatSize(needs.kv), " of KV for ", kv_tokens, " tokens and ",
                                  FormatSize(needs.buffers), " of buffers, and ", problem.nodes(),
                                  problem.nodes() == 1 ? " node has " : " nodes have ",
                                  FormatSize(needs.free), " free"))
                   .Node(node.name)
                   .Limit(absl::StrCat("free_bytes=", needs.free))
                   .Hint(hint)
                   .Fact("missing_bytes", missing)
                   .Fact("weight_bytes", needs.weights)
                   .Fact("kv_bytes", needs.kv)
                   .Fact("buffer_bytes", needs.buffers),
      .missing_bytes = missing};
}

absl::Status HostTooSmall(const PlacementProblem& problem, const PlacedStage& stage) {
  const PlannerNode& node = problem.node(stage.node);
  const uint64_t needed = problem.HostBytes(stage.node, stage.begin, stage.end);
  const uint64_t missing =
      needed > node.host_free_bytes ? needed - node.host_free_bytes : uint64_t{0};
  return Error(
             absl::StatusCode::kResourceExhausted, "MODEL_DOES_NOT_FIT",
             absl::StrCat("the model does not fit: layers ", stage.begin, "-", stage.end - 1,
                          " take ", FormatSize(needed), " of the host's memory of node ", node.name,
                          " while they are packed for its device, a layer at a time, and ",
                          FormatSize(node.host_free_bytes), " of --host-memory are free"))
      .Node(node.name)
      .Limit(absl::StrCat("host_free_bytes=", node.host_free_bytes))
      .Hint("raise --host-memory of that worker, or add a node")
      .Fact("missing_bytes", missing);
}

}  // namespace strata
