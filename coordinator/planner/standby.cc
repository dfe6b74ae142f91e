#include "coordinator/planner/standby.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/plan.h"
#include "common/status.h"

namespace strata {
namespace {

using Stages = google::protobuf::RepeatedPtrField<v1::PlanStage>;

// The layers that `after` has on nodes on which `before` has not, as ranges.
std::vector<StandbyPart> MovedParts(const Stages& before, const Stages& after) {
  std::map<uint32_t, std::string> held;  // By layer.
  for (const v1::PlanStage& stage : before) {
    for (uint32_t layer = stage.first_layer(); layer <= stage.last_layer(); ++layer) {
      held[layer] = OnlyRank(stage).node();
    }
  }
  std::vector<StandbyPart> parts;
  for (const v1::PlanStage& stage : after) {
    const std::string& node = OnlyRank(stage).node();
    for (uint32_t layer = stage.first_layer(); layer <= stage.last_layer(); ++layer) {
      if (held[layer] == node) {
        continue;
      }
      const bool goes_on = !parts.empty() && parts.back().node == node &&
                           parts.back().of_node == held[layer] &&
                           parts.back().last_layer + 1 == layer;
      if (goes_on) {
        parts.back().last_layer = layer;
      } else {
        parts.push_back({layer, layer, held[layer], node, absl::OkStatus()});
      }
    }
  }
  return parts;
}

class StandbySearch {
 public:
  explicit StandbySearch(const StandbyRequest& request)
      : request_(request),
        stages_(OnlyPipeline(request.plan).stages()),
        cluster_(request.cluster) {}

  std::vector<StandbyPart> Run() {
    for (const v1::PlanStage& stage : stages_) {
      PlannerCluster left = cluster_;
      DropNode(OnlyRank(stage).node(), &left);
      for (uint32_t copy = 0; copy < request_.copies; ++copy) {
        if (!AddCopy(stage, &left)) {
          break;
        }
      }
    }
    return std::move(parts_);
  }

 private:
  // Another copy of a stage's layers, over the nodes that are left; these then take no more.
  // Whether there is one.
  bool AddCopy(const v1::PlanStage& stage, PlannerCluster* left) {
    const absl::StatusOr<v1::Plan> plan =
        PlanReplacement({.before = request_.plan,
                         .nodes = left->nodes,
                         .layer_bytes = request_.layer_bytes,
                         .caches = request_.caches,
                         .options = request_.options,
                         .in_place = true,
                         .plan = [&](const v1::LoadOptions& options) {
                           return request_.plan_over(*left, options);
                         }});
    std::vector<StandbyPart> moved;
    if (plan.ok()) {
      moved = MovedParts(stages_, OnlyPipeline(*plan).stages());
    }
    if (!plan.ok() || moved.empty()) {
      parts_.push_back({stage.first_layer(), stage.last_layer(), OnlyRank(stage).node(), "",
                        plan.ok() ? absl::Status(NoneCan()) : plan.status()});
      return false;
    }
    for (StandbyPart& part : moved) {
      Take(part);
      UseUp(part.node, left);
      parts_.push_back(std::move(part));
    }
    return true;
  }

  static Error NoneCan() {
    return Error(absl::StatusCode::kResourceExhausted, "NO_STANDBY_NODE",
                 "no other node could take these layers")
        .Hint("add a worker");
  }

  // The node's disk has that much less for others.
  void Take(const StandbyPart& part) {
    for (PlannerNode& node : cluster_.nodes) {
      if (node.name != part.node || node.cache_bytes == std::numeric_limits<uint64_t>::max()) {
        continue;
      }
      for (uint32_t layer = part.first_layer; layer <= part.last_layer; ++layer) {
        const uint64_t bytes = request_.layer_bytes[layer];
        node.cache_bytes -= std::min(node.cache_bytes, bytes);
      }
    }
  }

  // The node can go on with what it computes, and take nothing else.
  void UseUp(const std::string& name, PlannerCluster* left) const {
    for (int i = 0; i < stages_.size(); ++i) {
      if (OnlyRank(stages_[i]).node() != name) {
        continue;
      }
      for (PlannerNode& node : left->nodes) {
        if (node.name == name) node.free_bytes = request_.stage_bytes[static_cast<size_t>(i)];
      }
      return;
    }
    DropNode(name, left);
  }

  const StandbyRequest& request_;
  const Stages& stages_;
  PlannerCluster cluster_;
  std::vector<StandbyPart> parts_;
};

}  // namespace

std::vector<StandbyPart> PlanStandby(const StandbyRequest& request) {
  return StandbySearch(request).Run();
}

}  // namespace strata
