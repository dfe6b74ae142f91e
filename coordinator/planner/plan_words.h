// Words that several explanations of plans share. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_PLAN_WORDS_H_
#define STRATA_COORDINATOR_PLANNER_PLAN_WORDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/planner/placement_problem.h"

namespace strata {

// "1.25 ms", "12.5 ms".
inline std::string MsText(double ms) {
  return ms < 10 ? absl::StrFormat("%.2f ms", ms) : absl::StrFormat("%.1f ms", ms);
}

// "layer 3", "layers 0-9".
inline std::string LayersText(const PlacedStage& stage) {
  return stage.begin + 1 == stage.end ? absl::StrCat("layer ", stage.begin)
                                      : absl::StrCat("layers ", stage.begin, "-", stage.end - 1);
}

// Of a node with several devices, which of them a stage leaves least room on: all of a node's
// memory counts by that one. Else "".
inline std::string FilledFirst(const PlacementProblem& problem, const PlacedStage& stage) {
  const std::optional<uint32_t> device = problem.FullestDevice(stage.node, stage.begin, stage.end);
  return device ? absl::StrCat(" (its GPU ", *device, " is filled first)") : "";
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_PLAN_WORDS_H_
