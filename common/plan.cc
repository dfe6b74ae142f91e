#include "common/plan.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/status.h"

namespace strata {
namespace {

// As common/model/rank_outputs.h has them.
constexpr int kRanksAtMost = 8;
constexpr uint32_t kPartsOfAll = 65536;

bool SharesAreWhole(const v1::PlanStage& stage) {
  uint32_t end = 0;
  for (const v1::PlanRank& rank : stage.ranks()) {
    if (rank.share_begin() != end || rank.share_end() <= end) {
      return false;
    }
    end = rank.share_end();
  }
  return end == kPartsOfAll;
}

}  // namespace

bool StageUses(const v1::PlanStage& stage, std::string_view node) {
  return std::any_of(stage.ranks().begin(), stage.ranks().end(),
                     [&](const v1::PlanRank& rank) { return rank.node() == node; });
}

bool SameRanks(const v1::PlanStage& a, const v1::PlanStage& b) {
  const bool one = a.ranks_size() == 1 && b.ranks_size() == 1;  // Its share is all, said or not.
  return std::equal(a.ranks().begin(), a.ranks().end(), b.ranks().begin(), b.ranks().end(),
                    [one](const v1::PlanRank& x, const v1::PlanRank& y) {
                      return x.node() == y.node() && (one || (x.share_begin() == y.share_begin() &&
                                                              x.share_end() == y.share_end()));
                    });
}

bool HasSharedStage(const v1::Plan& plan) {
  const auto& stages = OnlyPipeline(plan).stages();
  return std::any_of(stages.begin(), stages.end(),
                     [](const v1::PlanStage& stage) { return stage.ranks_size() > 1; });
}

std::string NodesOf(const v1::PlanStage& stage) {
  std::string nodes;
  for (const v1::PlanRank& rank : stage.ranks()) {
    nodes += (nodes.empty() ? "" : "+") + rank.node();
  }
  return nodes.empty() ? "?" : nodes;
}

absl::Status CheckPlanShape(const v1::Plan& plan) {
  const auto refused = [](const std::string& what) {
    return Error(absl::StatusCode::kFailedPrecondition, "PLAN_NOT_SUPPORTED",
                 "the plan has " + what +
                     ", and this version knows one pipeline of stages on 1 to 8 nodes each")
        .Hint("place the model anew, or run the version that made the plan");
  };
  if (plan.pipelines_size() != 1) {
    return refused(std::to_string(plan.pipelines_size()) + " pipelines");
  }
  const auto& stages = plan.pipelines(0).stages();
  if (stages.empty()) {
    return refused("no stages");
  }
  for (int i = 0; i < stages.size(); ++i) {
    const int ranks = stages[i].ranks_size();
    if (ranks < 1 || ranks > kRanksAtMost) {
      return refused(std::to_string(ranks) + " ranks in stage " + std::to_string(i));
    }
    if (ranks > 1 && !SharesAreWhole(stages[i])) {
      return refused("ranks in stage " + std::to_string(i) +
                     " whose shares are not of all outputs");
    }
  }
  return absl::OkStatus();
}

}  // namespace strata
