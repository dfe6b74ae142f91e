#include "coordinator/planner/explain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/units.h"
#include "coordinator/planner/local_search.h"
#include "coordinator/planner/plan_words.h"

namespace strata {
namespace {

// Nodes left out that get a sentence each; the others share one.
constexpr size_t kMaxNamed = 8;

std::string Count(size_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

class Writer {
 public:
  explicit Writer(const Explained& e)
      : e_(e), problem_(e.problem), stages_(e.solution.placement.stages) {
    for (const PlacedStage& stage : stages_) {
      compute_ms_ += problem_.StageMs(stage.node, stage.begin, stage.end);
    }
    hops_ms_ = std::max(0.0, e.solution.placement.latency_ms - compute_ms_);
  }

  std::vector<std::string> Write() {
    Goal();
    Limit();
    Kv();
    Kinds();
    Devices();
    LeftOut();
    Proof();
    return std::move(out_);
  }

 private:
  void Goal() {
    const std::string stream = absl::StrCat(
        "one token takes ", MsText(e_.solution.placement.latency_ms), ": ", MsText(compute_ms_),
        " of computing on ", Count(stages_.size(), "node"), " and ", MsText(hops_ms_), " on ",
        Count(stages_.size() + 1, "hop"), ", the coordinator's included");
    switch (e_.goal) {
      case v1::PLAN_GOAL_THROUGHPUT:
        out_.push_back(absl::StrFormat(
            "Goal throughput: the slowest stage takes %s, so that %d steps in flight give %.1f "
            "steps/s; for a single stream %s.",
            MsText(e_.solution.slowest_ms), static_cast<int>(e_.in_flight),
            StepsPerSecond(e_.solution, e_.in_flight), stream));
        break;
      case v1::PLAN_GOAL_CAPACITY:
        out_.push_back(absl::StrCat("Goal capacity: ", e_.kv_tokens,
                                    " KV tokens fit; with that much, ", stream, "."));
        break;
      default:
        out_.push_back(absl::StrCat("Goal latency: ", stream, "."));
    }
    if (e_.pinned) {
      out_.push_back("The layers are where --layers puts them.");
    }
  }

  void Limit() {
    const size_t limiting = LimitingNode(problem_, e_.solution, e_.goal);
    for (const PlacedStage& stage : stages_) {
      if (stage.node != limiting) {
        continue;
      }
      const PlannerNode& node = problem_.node(limiting);
      if (e_.goal == v1::PLAN_GOAL_CAPACITY) {
        out_.push_back(
            absl::StrCat("Node ", node.name, " limits: of its ", FormatSize(node.free_bytes), ", ",
                         FormatSize(problem_.StageBytes(limiting, stage.begin, stage.end)),
                         " are taken by ", LayersText(stage),
                         ", their KV and buffers; one more page on every stage would not fit."));
        return;
      }
      const double bytes =
          static_cast<double>(problem_.WeightBytes(stage.node, stage.begin, stage.end));
      const double ms = problem_.StageMs(stage.node, stage.begin, stage.end);
      out_.push_back(absl::StrFormat(
          "Node %s limits: %s with %s of weights take %s of a token's time (it reads %.1f GB/s "
          "and computes %.1f Gflop/s).",
          node.name, LayersText(stage), FormatSize(static_cast<uint64_t>(bytes)), MsText(ms),
          node.read_bytes_per_s / 1e9, node.flops_per_s / 1e9));
    }
  }

  // What groups get that need fewer pages.
  std::string Windows() const {
    std::string text;
    for (uint32_t group = 0; group < problem_.groups().size(); ++group) {
      const uint64_t pages = problem_.GroupPages(group, e_.solution.pages, stages_.size());
      if (pages < e_.solution.pages) {
        absl::StrAppend(&text, " (", pages, " of ", KvGroupName(problem_.groups()[group]), ")");
      }
    }
    return text;
  }

  void Kv() {
    uint64_t bytes = 0;
    uint64_t room = problem_.MaxPages();
    size_t tightest = stages_.front().node;
    for (const PlacedStage& stage : stages_) {
      bytes +=
          problem_.KvBytes(stage.node, stage.begin, stage.end, e_.solution.pages, stages_.size());
      const uint64_t pages = problem_.PagesThatFit(stage.node, stage.begin, stage.end);
      if (pages < room) {
        room = pages;
        tightest = stage.node;
      }
    }
    out_.push_back(absl::StrCat(
        "KV: ", e_.kv_tokens, " tokens (", e_.wanted_tokens, " wanted) are ", e_.solution.pages,
        " pages of ", kPageTokens, " on every stage", Windows(), ", ", FormatSize(bytes),
        " in all; node ", problem_.node(tightest).name, " would have room for ", room, " pages."));
  }

  // That not all layers are computed alike, and why.
  void Kinds() {
    std::vector<std::string> kinds;
    for (const PlacedStage& stage : stages_) {
      const std::string& numerics = problem_.node(stage.node).numerics;
      if (std::find(kinds.begin(), kinds.end(), numerics) == kinds.end()) {
        kinds.push_back(numerics);
      }
    }
    if (kinds.size() < 2) {
      return;
    }
    std::string why;
    if (e_.mixed_for == Explained::kNoKindFits) {
      why = ": nodes of one kind alone have no room";
    } else if (e_.mixed_for > 0) {
      why =
          absl::StrFormat(": that is %.2f times as good as nodes of one kind alone", e_.mixed_for);
    }
    out_.push_back(absl::StrCat("Layers are computed as ", absl::StrJoin(kinds, " and "), why,
                                ". Only nodes of its kind can take a layer's place with the same "
                                "bits."));
  }

  // What the nodes of the plan compute on.
  void Devices() {
    std::vector<std::string> of_nodes;
    for (const PlacedStage& stage : stages_) {
      const PlannerNode& node = problem_.node(stage.node);
      std::string device =
          node.device_name.empty() ? node.device : node.device + ", " + node.device_name;
      for (const PlannerDevice& one : node.devices) {
        absl::StrAppendFormat(&device, "%s %.0f %% of each stage on GPU %u",
                              &one == &node.devices.front() ? ":" : ",",
                              100.0 * one.of_stage.share.size() / kShareParts, one.index);
      }
      of_nodes.push_back(
          absl::StrFormat("%s (%s) has %s free, reads %.1f GB/s and computes %.1f "
                          "Gflop/s",
                          node.name, device, FormatSize(node.free_bytes),
                          node.read_bytes_per_s / 1e9, node.flops_per_s / 1e9));
      const uint64_t host = problem_.HostBytes(stage.node, stage.begin, stage.end);
      if (host != 0) {
        absl::StrAppend(&of_nodes.back(), ", and of the host's memory ", FormatSize(host), " of ",
                        FormatSize(node.host_free_bytes), " are taken while it loads");
      }
    }
    const size_t named = std::min(of_nodes.size(), kMaxNamed);
    const std::vector<std::string> first(of_nodes.begin(),
                                         of_nodes.begin() + static_cast<ptrdiff_t>(named));
    out_.push_back(absl::StrCat(
        "Devices: ", absl::StrJoin(first, "; "),
        of_nodes.size() > named ? absl::StrCat("; and ", of_nodes.size() - named, " more") : "",
        "."));
  }

  void LeftOut() {
    std::vector<std::string> sentences;
    for (const PlannerNode& node : e_.too_small) {
      sentences.push_back(absl::StrCat(
          "Node ", node.name, " is left out: its ", FormatSize(node.free_bytes),
          " hold not one layer beside buffers and the KV of ", e_.wanted_tokens, " tokens."));
    }
    for (const PlannerNode& node : e_.hosts_too_small) {
      sentences.push_back(
          absl::StrCat("Node ", node.name, " is left out: of the host's memory ",
                       FormatSize(node.host_free_bytes),
                       " of --host-memory are free, too little to pack one layer for its device."));
    }
    for (size_t i = 0; i < problem_.nodes(); ++i) {
      const bool used = std::any_of(stages_.begin(), stages_.end(),
                                    [i](const PlacedStage& stage) { return stage.node == i; });
      if (!used && !e_.pinned) {
        sentences.push_back(LeftOutSentence(i));
      }
    }
    for (const PlannerNode& node : e_.other_numerics) {
      sentences.push_back(absl::StrCat("Node ", node.name, " is left out: it computes as ",
                                       node.numerics, ", and mixing numerics gains too little."));
    }
    for (const PlannerNode& node : e_.floats_alone) {
      sentences.push_back(absl::StrCat("Node ", node.name, " is left out: it computes as ",
                                       node.numerics,
                                       ", with float32 activations alone (--activations f32)."));
    }
    const size_t named = std::min(sentences.size(), kMaxNamed);
    out_.insert(out_.end(), sentences.begin(), sentences.begin() + static_cast<ptrdiff_t>(named));
    if (sentences.size() > named) {
      out_.push_back(
          absl::StrCat(Count(sentences.size() - named, "more node"), " left out likewise."));
    }
  }

  std::string LeftOutSentence(size_t node) const {
    const std::string name = problem_.node(node).name;
    if (e_.goal == v1::PLAN_GOAL_THROUGHPUT) {
      return absl::StrCat("Node ", name, " is left out: with it the slowest stage is no faster",
                          e_.solution.gap > 0 ? ", as far as was searched." : ".");
    }
    const double ms = LatencyWithNode(problem_, stages_, node);
    if (ms == kNever) {
      return absl::StrCat("Node ", name, " is left out: it has no place among the others.");
    }
    return absl::StrCat("Node ", name, " is left out: with it among these nodes a token takes ",
                        MsText(ms), " instead of ", MsText(e_.solution.placement.latency_ms), ".");
  }

  void Proof() {
    if (e_.pinned && e_.solution.gap > 0) {
      out_.push_back(absl::StrFormat("Without --layers up to %.1f %% could be gained.",
                                     100 * e_.solution.gap));
    } else if (e_.solution.gap > 0) {
      out_.push_back(absl::StrFormat("No placement is more than %.1f %% better than this one.",
                                     100 * e_.solution.gap));
    } else {
      out_.push_back("No placement is better for this goal, by these measurements.");
    }
  }

  const Explained& e_;
  const PlacementProblem& problem_;
  const std::vector<PlacedStage>& stages_;
  double compute_ms_ = 0;
  double hops_ms_ = 0;
  std::vector<std::string> out_;
};

}  // namespace

size_t LimitingNode(const PlacementProblem& problem, const Solution& solution, v1::PlanGoal goal) {
  size_t limiting = 0;
  double worst = -1;
  for (const PlacedStage& stage : solution.placement.stages) {
    double weight = problem.StageMs(stage.node, stage.begin, stage.end);
    if (goal == v1::PLAN_GOAL_CAPACITY) {
      weight =
          1 / (1 + static_cast<double>(problem.PagesThatFit(stage.node, stage.begin, stage.end)));
    }
    if (weight > worst) {
      worst = weight;
      limiting = stage.node;
    }
  }
  return limiting;
}

std::vector<std::string> Explain(const Explained& explained) { return Writer(explained).Write(); }

}  // namespace strata
