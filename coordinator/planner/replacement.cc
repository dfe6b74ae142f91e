#include "coordinator/planner/replacement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "common/model/numerics_class.h"
#include "common/plan.h"
#include "common/status.h"

namespace strata {
namespace {

// A plan with less of the best one's predicted speed is not taken for what it moves.
constexpr double kFastEnough = 0.8;
// What runs is left for a plan that is so much faster.
constexpr double kWorthAMove = 1.2;
// Of one lost node: which nodes are tried in its place, and at how many cuts its neighbours share
// its layers.
constexpr size_t kMostSpares = 64;
constexpr uint32_t kMostCuts = 128;

struct Part {
  std::vector<std::string> nodes;  // That compute it together; mostly one.
  std::vector<uint32_t> weights;   // Of their shares; empty: by bandwidth.
  uint32_t first_layer = 0;
  uint32_t last_layer = 0;
};

Part PartOf(const v1::PlanStage& stage) {
  Part part;
  for (const v1::PlanRank& rank : stage.ranks()) {
    part.nodes.push_back(rank.node());
    part.weights.push_back(rank.share_end() - rank.share_begin());
  }
  part.first_layer = stage.first_layer();
  part.last_layer = stage.last_layer();
  return part;
}

// With another node in a rank's place, whose bandwidth is another.
void Replace(size_t rank, const std::string& node, Part* part) {
  part->nodes[rank] = node;
  part->weights.clear();
}

v1::LoadOptions Pinned(v1::LoadOptions options, const std::vector<Part>& parts) {
  options.clear_nodes();
  options.clear_layers();
  for (const Part& part : parts) {
    v1::LoadOptions::PinnedLayers* pin = options.add_layers();
    for (size_t rank = 0; part.nodes.size() > 1 && rank < part.nodes.size(); ++rank) {
      v1::LoadOptions::PinnedRank* pinned = pin->add_ranks();
      pinned->set_node(part.nodes[rank]);
      pinned->set_weight(part.weights.empty() ? 0 : part.weights[rank]);
    }
    if (part.nodes.size() == 1) pin->set_node(part.nodes.front());
    pin->set_first_layer(part.first_layer);
    pin->set_last_layer(part.last_layer);
  }
  return options;
}

class Search {
 public:
  explicit Search(const ReplacementRequest& request) : request_(request) {
    for (const v1::PlanStage& stage : OnlyPipeline(request.before).stages()) {
      parts_.push_back(PartOf(stage));
    }
    for (size_t i = 0; i < parts_.size(); ++i) {
      for (size_t rank = 0; rank < parts_[i].nodes.size(); ++rank) {
        if (Find(parts_[i].nodes[rank]) == nullptr) lost_.push_back({i, rank});
      }
    }
    const uint64_t least = LeastLostBytes();
    for (const PlannerNode& node : request.nodes) {
      const bool used = std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
        return std::find(part.nodes.begin(), part.nodes.end(), node.name) != part.nodes.end();
      });
      if (!used && node.free_bytes >= least) spares_.push_back(&node);
    }
    // Those that compute as a lost node did, then those that have most of what is lost packed, and
    // of these the fastest, first.
    const auto worth = [this](const PlannerNode* node) {
      const bool alike = std::any_of(lost_.begin(), lost_.end(), [&](const Lost& lost) {
        return NumericsOf(parts_[lost.part]) == node->numerics;
      });
      return std::tuple(alike, LostPacked(node->name), node->read_bytes_per_s);
    };
    std::stable_sort(
        spares_.begin(), spares_.end(),
        [&](const PlannerNode* a, const PlannerNode* b) { return worth(a) > worth(b); });
  }

  absl::StatusOr<std::optional<v1::Plan>> Better() {
    ASSIGN_OR_RETURN(const v1::Plan runs, request_.plan(Pinned(request_.options, parts_)));
    const v1::LoadOptions open = Pinned(request_.options, {});
    const v1::LoadOptions alike = OnNodesAlike(open);
    ASSIGN_OR_RETURN(v1::Plan anew, request_.plan(alike.nodes().empty() ? open : alike));
    // A loss may have left too few nodes for what was asked for.
    const bool asked_for = request_.options.ranks() > 1 && !HasSharedStage(request_.before);
    if (asked_for || anew.predicted_tokens_per_s() >= kWorthAMove * runs.predicted_tokens_per_s()) {
      Add(std::move(anew));
    }
    return plans_.empty() ? std::nullopt : std::optional(std::move(plans_.front()));
  }

  absl::StatusOr<v1::Plan> Run() {
    TryOthersInTheirPlace();
    TryNeighbours();
    if (request_.in_place && !plans_.empty()) {
      return Best();
    }
    const v1::LoadOptions open = Pinned(request_.options, {});
    if (const v1::LoadOptions alike = OnNodesAlike(open); !alike.nodes().empty()) {
      if (absl::StatusOr<v1::Plan> anew = request_.plan(alike); anew.ok()) {
        Add(*std::move(anew));
      }
    }
    absl::StatusOr<v1::Plan> anew = request_.plan(open);
    if (anew.ok()) {
      Add(*anew);
    } else if (open.ranks() > 1) {
      // Too few are left for that: one node a stage computes the same bits.
      v1::LoadOptions alone = open;
      alone.set_ranks(1);
      anew = request_.plan(alone);
      if (anew.ok()) Add(*anew);
    }
    if (plans_.empty() && request_.other_class) {
      plans_ = std::move(others_);
    }
    if (plans_.empty()) {
      return anew.ok() ? WhyNone(*anew) : anew.status();
    }
    return Best();
  }

 private:
  // As what the part's layers were computed.
  std::string NumericsOf(const Part& part) const {
    return NumericsOfLayers(request_.before.numerics_class().name(), part.first_layer,
                            part.last_layer);
  }

  // On the nodes alone that compute as the plan before does, where all of that was computed alike
  // and others are left too; else without any.
  v1::LoadOptions OnNodesAlike(v1::LoadOptions options) const {
    const std::string& name = request_.before.numerics_class().name();
    const std::string numerics = NumericsOfLayers(name, 0, parts_.back().last_layer);
    for (const PlannerNode& node : request_.nodes) {
      if (node.numerics == numerics) {
        options.add_nodes(node.name);
      }
    }
    if (static_cast<size_t>(options.nodes_size()) == request_.nodes.size()) {
      options.clear_nodes();
    }
    return options;
  }

  v1::Plan Best() {
    if (request_.options.standby() > 0) {
      const auto moves = [this](const v1::Plan& plan) { return MovementTo(plan) != Movement(); };
      if (!std::all_of(plans_.begin(), plans_.end(), moves)) std::erase_if(plans_, moves);
    }
    double best = 0;
    for (const v1::Plan& plan : plans_) best = std::max(best, plan.predicted_tokens_per_s());
    const v1::Plan* chosen = nullptr;
    Movement least;
    for (const v1::Plan& plan : plans_) {
      if (plan.predicted_tokens_per_s() < kFastEnough * best) {
        continue;
      }
      const Movement moved = MovementTo(plan);
      const bool better =
          chosen == nullptr || moved < least ||
          (moved == least && plan.predicted_tokens_per_s() > chosen->predicted_tokens_per_s());
      if (better) {
        chosen = &plan;
        least = moved;
      }
    }
    return *chosen;
  }

  Movement MovementTo(const v1::Plan& plan) const {
    return MovementOf(request_.before, plan, request_.layer_bytes, request_.caches);
  }

  const PlannerNode* Find(const std::string& name) const {
    for (const PlannerNode& node : request_.nodes) {
      if (node.name == name) return &node;
    }
    return nullptr;
  }

  // The weights of the smallest lost part: what has no memory for those is no spare.
  uint64_t LeastLostBytes() const {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const Lost& lost : lost_) {
      const Part& part = parts_[lost.part];
      uint64_t bytes = 0;
      for (uint32_t layer = part.first_layer; layer <= part.last_layer; ++layer) {
        bytes += layer < request_.layer_bytes.size() ? request_.layer_bytes[layer] : 0;
      }
      // Another node's share may be smaller than the lost one's.
      least = std::min(least, part.nodes.size() > 1 ? 0 : bytes);
    }
    return lost_.empty() ? 0 : least;
  }

  // How many of the lost layers a node has packed.
  size_t LostPacked(const std::string& node) const {
    const auto cache = request_.caches.find(node);
    size_t count = 0;
    for (const Lost& lost : lost_) {
      const Part& part = parts_[lost.part];
      for (uint32_t layer = part.first_layer; layer <= part.last_layer; ++layer) {
        count += cache != request_.caches.end() && layer < cache->second.size() &&
                         cache->second[layer].packed
                     ? 1
                     : 0;
      }
    }
    return count;
  }

  void TryParts(const std::vector<Part>& parts) {
    if (absl::StatusOr<v1::Plan> plan = request_.plan(Pinned(request_.options, parts)); plan.ok()) {
      Add(*std::move(plan));
    }
  }

  void Add(v1::Plan plan) {
    const bool same = plan.numerics_class().name() == request_.before.numerics_class().name();
    if (HasDisk(plan)) {
      (same ? plans_ : others_).push_back(std::move(plan));
    }
  }

  bool HasDisk(const v1::Plan& plan) const {
    const auto& stages = OnlyPipeline(plan).stages();
    return std::all_of(stages.begin(), stages.end(), [this](const v1::PlanStage& stage) {
      return std::all_of(stage.ranks().begin(), stage.ranks().end(), [&](const v1::PlanRank& rank) {
        const PlannerNode* node = Find(rank.node());
        const bool shared = stage.ranks_size() > 1;
        return node != nullptr &&
               (shared ? rank.weight_bytes() : stage.weight_bytes()) <= node->cache_bytes;
      });
    });
  }

  void TryOthersInTheirPlace() {
    if (lost_.empty() || spares_.size() < lost_.size()) {
      return;
    }
    std::vector<Part> parts = parts_;
    if (lost_.size() == 1) {
      for (size_t i = 0; i < std::min(spares_.size(), kMostSpares); ++i) {
        Replace(lost_[0].rank, spares_[i]->name, &parts[lost_[0].part]);
        TryParts(parts);
      }
      return;
    }
    std::vector<const PlannerNode*> left = spares_;
    for (const Lost& lost : lost_) {
      const auto alike = std::find_if(left.begin(), left.end(), [&](const PlannerNode* node) {
        return node->numerics == NumericsOf(parts_[lost.part]);
      });
      const auto taken = alike == left.end() ? left.begin() : alike;
      Replace(lost.rank, (*taken)->name, &parts[lost.part]);
      left.erase(taken);
    }
    TryParts(parts);
  }

  // The layers of one lost part go to the parts beside it, cut anywhere.
  void TryNeighbours() {
    if (lost_.size() != 1 || parts_.size() < 2) {
      return;
    }
    const size_t lost = lost_[0].part;
    const Part& part = parts_[lost];
    const uint32_t layers = part.last_layer - part.first_layer + 1;
    const bool before = lost > 0;
    const bool behind = lost + 1 < parts_.size();
    const uint32_t step = std::max(1u, layers / kMostCuts);
    for (uint32_t taken = 0; taken <= layers; taken += step) {
      // The part before takes so many, the one behind the others.
      if ((taken > 0 && !before) || (taken < layers && !behind)) {
        continue;
      }
      std::vector<Part> parts = parts_;
      if (before) parts[lost - 1].last_layer += taken;
      if (behind) parts[lost + 1].first_layer -= layers - taken;
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(lost));
      TryParts(parts);
    }
  }

  absl::Status WhyNone(const v1::Plan& plan) const {
    if (plan.numerics_class().name() == request_.before.numerics_class().name()) {
      return Error(absl::StatusCode::kResourceExhausted, "NO_DISK",
                   "the disks of the nodes that are left have no room for its weights")
          .Hint("free space on the disk of their --data-dir, or add a worker");
    }
    return Error(absl::StatusCode::kFailedPrecondition, "NUMERICS_CHANGED",
                 "the nodes that are left compute in another class (" +
                     plan.numerics_class().name() + ")")
        .Hint("add a worker of the kind that was lost, or load the model anew");
  }

  const ReplacementRequest& request_;
  std::vector<Part> parts_;
  std::vector<const PlannerNode*> spares_;
  struct Lost {
    size_t part = 0;  // Of parts_.
    size_t rank = 0;
  };
  std::vector<Lost> lost_;
  std::vector<v1::Plan> plans_;
  std::vector<v1::Plan> others_;  // In other classes than the plan before.
};

}  // namespace

uint64_t MovedBytes(const v1::Plan& before, const v1::Plan& after,
                    const std::vector<uint64_t>& layer_bytes) {
  return MovementOf(before, after, layer_bytes, {}).fetched_bytes;
}

Movement MovementOf(const v1::Plan& before, const v1::Plan& after,
                    const std::vector<uint64_t>& layer_bytes, const NodeCaches& caches) {
  std::map<uint32_t, const v1::PlanStage*> held;  // By layer.
  for (const v1::PlanStage& stage : OnlyPipeline(before).stages()) {
    for (uint32_t layer = stage.first_layer(); layer <= stage.last_layer(); ++layer) {
      held[layer] = &stage;
    }
  }
  Movement moved;
  for (const v1::PlanStage& stage : OnlyPipeline(after).stages()) {
    // What caches tell is of whole layers: ranks count as having nothing.
    const auto cache = stage.ranks_size() > 1 ? caches.end() : caches.find(FirstRank(stage).node());
    for (uint32_t layer = stage.first_layer(); layer <= stage.last_layer(); ++layer) {
      const auto it = held.find(layer);
      const bool stays = it != held.end() && SameRanks(*it->second, stage);
      if (stays || layer >= layer_bytes.size()) {
        continue;
      }
      const bool known = cache != caches.end() && layer < cache->second.size();
      const CachedLayer cached = known ? cache->second[layer] : CachedLayer{layer_bytes[layer]};
      moved.fetched_bytes += cached.packed ? 0 : cached.fetched_bytes;
      moved.packed_bytes += cached.packed ? 0 : layer_bytes[layer];
    }
  }
  return moved;
}

absl::StatusOr<v1::Plan> PlanReplacement(const ReplacementRequest& request) {
  return Search(request).Run();
}

absl::StatusOr<std::optional<v1::Plan>> PlanBetter(const ReplacementRequest& request) {
  return Search(request).Better();
}

}  // namespace strata
