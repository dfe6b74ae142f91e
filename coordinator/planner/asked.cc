#include "coordinator/planner/asked.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/model/numerics_class.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status UnknownNode(const std::string& name) {
  return Error(absl::StatusCode::kNotFound, "NODE_NOT_FOUND",
               absl::StrCat("there is no ready node '", name, "'"))
      .Node(name)
      .Hint("`strata node list` shows the nodes");
}

absl::Status BadPins(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "LAYERS_PINNED_WRONG",
               absl::StrCat("--layers: ", std::string(what)))
      .Hint(
          "name every layer once, each node once: --layers a:0-9,b:10-31, or a+b:0-9 for two "
          "nodes that compute them together");
}

// Reads one after the other, in order of layers.
class Pins {
 public:
  Pins(const PlannerCluster& cluster, uint32_t layers, const PlannerRequest& request)
      : cluster_(cluster), layers_(layers), request_(request) {}

  absl::Status Add(const v1::LoadOptions::PinnedLayers& pin) {
    RETURN_IF_ERROR(CheckRange(pin));
    PinnedStage stage;
    stage.begin = next_;
    stage.end = pin.last_layer() + 1;
    if (pin.ranks().empty()) {
      RETURN_IF_ERROR(AddNode(pin.node(), &stage));
    }
    for (const v1::LoadOptions::PinnedRank& rank : pin.ranks()) {
      RETURN_IF_ERROR(AddNode(rank.node(), &stage));
      if (rank.weight() > kShareParts) {
        return BadPins(absl::StrCat("the share of node ", rank.node(), " is ", rank.weight(),
                                    ", more than ", kShareParts));
      }
      if (rank.weight() > 0) {
        stage.weights.push_back(rank.weight());
      }
    }
    RETURN_IF_ERROR(CheckRanks(pin, stage));
    next_ = stage.end;
    stages_.push_back(std::move(stage));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<PinnedStage>> Done() {
    if (next_ < layers_) {
      return BadPins(absl::StrCat("layers ", next_, "-", layers_ - 1, " are on no node"));
    }
    return std::move(stages_);
  }

 private:
  absl::Status CheckRange(const v1::LoadOptions::PinnedLayers& pin) const {
    if (pin.first_layer() > pin.last_layer() || pin.last_layer() >= layers_) {
      return BadPins(absl::StrCat("layers ", pin.first_layer(), "-", pin.last_layer(),
                                  " are not in 0-", layers_ - 1));
    }
    if (pin.first_layer() > next_) {
      return BadPins(absl::StrCat("layers ", next_, "-", pin.first_layer() - 1, " are on no node"));
    }
    if (pin.first_layer() < next_) {
      return BadPins(absl::StrCat("layer ", pin.first_layer(), " is on two nodes"));
    }
    return absl::OkStatus();
  }

  absl::Status AddNode(const std::string& name, PinnedStage* stage) {
    const auto index = FindNode(cluster_, name);
    if (!index) {
      return UnknownNode(name);
    }
    const auto& named = request_.options.nodes();
    if (!named.empty() && std::find(named.begin(), named.end(), name) == named.end()) {
      return BadPins(absl::StrCat("node ", name, " is not among --nodes"));
    }
    if (!used_.insert(*index).second) {
      return BadPins(absl::StrCat("node ", name, " has two ranges of layers"));
    }
    if (!TakesActivations(cluster_.nodes[*index], request_)) {
      return NoInt8Activations(absl::StrCat("node ", name, " computes"));
    }
    stage->nodes.push_back(*index);
    return absl::OkStatus();
  }

  absl::Status CheckRanks(const v1::LoadOptions::PinnedLayers& pin,
                          const PinnedStage& stage) const {
    const std::string of = absl::StrCat("layers ", pin.first_layer(), "-", pin.last_layer());
    if (stage.nodes.size() > kMostRanks) {
      return BadPins(absl::StrCat(of, " are on ", stage.nodes.size(),
                                  " nodes together, and at most ", kMostRanks, " can be"));
    }
    if (!stage.weights.empty() && stage.weights.size() != stage.nodes.size()) {
      return BadPins(absl::StrCat(of, " give shares to some of their nodes alone"));
    }
    return absl::OkStatus();
  }

  const PlannerCluster& cluster_;
  const uint32_t layers_;
  const PlannerRequest& request_;
  std::set<size_t> used_;
  uint32_t next_ = 0;
  std::vector<PinnedStage> stages_;
};

}  // namespace

AskedKv AskedKvOf(const v1::LoadOptions& options) {
  AskedKv kv;
  kv.goal = options.goal() == v1::PLAN_GOAL_UNSPECIFIED ? v1::PLAN_GOAL_LATENCY : options.goal();
  kv.sessions = std::max(1u, options.sessions());
  kv.context = std::max(1u, options.context());
  kv.tokens = options.kv_tokens() != 0 ? options.kv_tokens() : uint64_t{kv.context} * kv.sessions;
  kv.pages = (kv.tokens - 1) / kPageTokens + 1 + kv.sessions;
  return kv;
}

absl::Status CheckAskedKv(const AskedKv& kv, const PlacementProblem& problem) {
  const uint64_t most = problem.MaxPages();
  if (kv.pages <= most) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS",
               absl::StrCat(kv.tokens, " KV tokens are more than any plan grants"))
      .Limit(absl::StrCat("kv_tokens=", most * kPageTokens))
      .Hint("lower --kv-tokens");
}

std::optional<size_t> FindNode(const PlannerCluster& cluster, const std::string& name) {
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    if (cluster.nodes[i].name == name) {
      return i;
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<size_t>> CandidatesOf(const PlannerCluster& cluster,
                                                 const v1::LoadOptions& options) {
  const auto& named = options.nodes();
  for (const std::string& name : named) {
    if (!FindNode(cluster, name)) {
      return UnknownNode(name);
    }
  }
  std::vector<size_t> candidates;
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    if (named.empty() ||
        std::find(named.begin(), named.end(), cluster.nodes[i].name) != named.end()) {
      candidates.push_back(i);
    }
  }
  if (candidates.empty()) {
    return Error(absl::StatusCode::kResourceExhausted, "NO_NODES",
                 "there is no ready node to place the model on")
        .Hint("start a worker: strata-worker --coordinator HOST:PORT");
  }
  return candidates;
}

bool TakesActivations(const PlannerNode& node, const PlannerRequest& request) {
  return request.options.activations() != v1::ACTIVATIONS_INT8 || request.activations_by_default ||
         TakesInt8Activations(node.numerics);
}

absl::Status NoInt8Activations(std::string_view who) {
  return Error(absl::StatusCode::kFailedPrecondition, "BAD_ACTIVATIONS",
               absl::StrCat(std::string(who),
                            " with float32 activations alone, and int8 is asked for"))
      .Hint("load the model with --activations f32");
}

absl::StatusOr<std::vector<PinnedStage>> PinsOf(const PlannerCluster& cluster, uint32_t layers,
                                                const PlannerRequest& request) {
  std::vector<v1::LoadOptions::PinnedLayers> pins(request.options.layers().begin(),
                                                  request.options.layers().end());
  std::stable_sort(pins.begin(), pins.end(),
                   [](const auto& a, const auto& b) { return a.first_layer() < b.first_layer(); });
  Pins read(cluster, layers, request);
  for (const auto& pin : pins) {
    RETURN_IF_ERROR(read.Add(pin));
  }
  return read.Done();
}

}  // namespace strata
