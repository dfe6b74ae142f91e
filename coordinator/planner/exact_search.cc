#include "coordinator/planner/exact_search.h"

#include <algorithm>
#include <bit>

#include "coordinator/planner/fill.h"

namespace strata {
namespace {

// Steps of SearchLayers that take about 150 ms.
constexpr double kMaxLayerSteps = 6e7;

// Held and Karp for one first node.
class SubsetSearch {
 public:
  SubsetSearch(const PlacementProblem& problem, const Placement& known)
      : problem_(problem),
        filler_(problem),
        n_(problem.nodes()),
        best_ms_(known.latency_ms),
        path_((size_t{1} << n_) * n_),
        before_((size_t{1} << n_) * n_) {
    // Below any split's compute time: as if every node could hold as much as its memory allows
    // without embedding and head, which run on the best.
    double left = problem.layers();
    for (const size_t node : filler_.by_speed()) {
      const double take = std::min<double>(left, filler_.Capacity(node, false, false));
      least_compute_ms_ += take * problem.LayerMs(node);
      left -= take;
    }
    if (left > 0) {
      least_compute_ms_ = kNever;
    }
    double head = kNever;
    for (size_t i = 0; i < n_; ++i) {
      head = std::min(head, problem.HeadMs(i));
    }
    least_compute_ms_ += head;
  }

  Placement Run(const Placement& known) {
    for (size_t first = 0; first < n_; ++first) {
      From(first);
    }
    if (order_.empty()) {
      return known;
    }
    Placement placement;
    placement.stages = filler_.Stages(order_);
    placement.latency_ms = problem_.LatencyMs(placement.stages);
    return placement;
  }

 private:
  double& Path(uint32_t set, size_t last) { return path_[set * n_ + last]; }

  void From(size_t first) {
    std::fill(path_.begin(), path_.end(), kNever);
    Path(1u << first, first) = problem_.HopMs(problem_.coordinator(), first);
    const uint32_t end = 1u << n_;
    for (uint32_t set = 1; set < end; ++set) {
      if ((set >> first & 1) == 0 ||
          static_cast<uint32_t>(std::popcount(set)) > problem_.layers()) {
        continue;
      }
      members_ready_ = false;
      for (size_t last = 0; last < n_; ++last) {
        const double ms = Path(set, last);
        if (ms + least_compute_ms_ >= best_ms_) {
          continue;
        }
        End(set, first, last, ms + problem_.HopMs(last, problem_.coordinator()));
        for (size_t next = 0; next < n_; ++next) {
          const uint32_t grown = set | 1u << next;
          const double longer = ms + problem_.HopMs(last, next);
          if (grown != set && longer < Path(grown, next)) {
            Path(grown, next) = longer;
            before_[grown * n_ + next] = static_cast<uint8_t>(last);
          }
        }
      }
    }
  }

  // A path that is complete with its hop back.
  void End(uint32_t set, size_t first, size_t last, double hops_ms) {
    if (hops_ms + least_compute_ms_ >= best_ms_ || (last == first && std::popcount(set) > 1)) {
      return;
    }
    if (!members_ready_) {
      members_.clear();
      for (const size_t node : filler_.by_speed()) {
        if (set >> node & 1) {
          members_.push_back(node);
        }
      }
      members_ready_ = true;
    }
    const double total = hops_ms + filler_.Ms(members_, first, last);
    if (total >= best_ms_) {
      return;
    }
    best_ms_ = total;
    order_.clear();
    for (size_t at = last;;) {
      order_.push_back(at);
      if (at == first) {
        break;
      }
      const size_t previous = before_[set * n_ + at];
      set &= ~(1u << at);
      at = previous;
    }
    std::reverse(order_.begin(), order_.end());
  }

  const PlacementProblem& problem_;
  const Filler filler_;
  const size_t n_;
  double least_compute_ms_ = 0;
  double best_ms_;
  std::vector<size_t> order_;    // Of the best, if better than what was known.
  std::vector<double> path_;     // [set][last]
  std::vector<uint8_t> before_;  // [set][last]
  std::vector<size_t> members_;  // Of the present set, the fastest first.
  bool members_ready_ = false;
};

}  // namespace

Placement SearchSubsets(const PlacementProblem& problem, const Placement& known) {
  return SubsetSearch(problem, known).Run(known);
}

bool LayersSearchable(const PlacementProblem& problem) {
  const auto n = static_cast<double>(problem.nodes());
  const double layers = problem.layers();
  return n <= 12 &&
         static_cast<double>(1u << problem.nodes()) * n * n * layers * layers / 4 <= kMaxLayerSteps;
}

Placement SearchLayers(const PlacementProblem& problem) {
  const size_t n = problem.nodes();
  const uint32_t layers = problem.layers();
  struct State {
    double ms = kNever;
    uint32_t begin = 0;  // Of the last stage.
    int8_t before = -1;  // The node before it; -1: the coordinator.
  };
  std::vector<State> states((size_t{1} << n) * n * (layers + 1));
  const auto at = [&](uint32_t set, size_t last, uint32_t done) -> State& {
    return states[(set * n + last) * (layers + 1) + done];
  };
  const auto extend = [&](double ms, int before, uint32_t set, size_t node, uint32_t begin) {
    for (uint32_t end = begin + 1; end <= layers; ++end) {
      if (!problem.Allowed(node, begin, end)) {
        // Longer ones need more still, but the head's part comes only with the very last layer.
        break;
      }
      const double total = ms + problem.StageMs(node, begin, end);
      State& state = at(set | 1u << node, node, end);
      if (total < state.ms) {
        state = {total, begin, static_cast<int8_t>(before)};
      }
    }
  };
  for (size_t i = 0; i < n; ++i) {
    extend(problem.HopMs(problem.coordinator(), i), -1, 0, i, 0);
  }
  double best = kNever;
  uint32_t best_set = 0;
  size_t best_last = 0;
  for (uint32_t set = 1; set < (1u << n); ++set) {
    for (size_t last = 0; last < n; ++last) {
      const double total = at(set, last, layers).ms + problem.HopMs(last, problem.coordinator());
      if (total < best) {
        best = total;
        best_set = set;
        best_last = last;
      }
      for (uint32_t done = 1; done < layers; ++done) {
        const double ms = at(set, last, done).ms;
        for (size_t next = 0; ms < best && next < n; ++next) {
          const double hop = problem.HopMs(last, next);
          if ((set >> next & 1) == 0 && hop < kNever) {
            extend(ms + hop, static_cast<int>(last), set, next, done);
          }
        }
      }
    }
  }
  Placement placement;
  if (best == kNever) {
    return placement;
  }
  uint32_t end = layers;
  for (int node = static_cast<int>(best_last); node >= 0;) {
    const State& state = at(best_set, static_cast<size_t>(node), end);
    placement.stages.push_back({static_cast<size_t>(node), state.begin, end});
    best_set &= ~(1u << node);
    end = state.begin;
    node = state.before;
  }
  std::reverse(placement.stages.begin(), placement.stages.end());
  placement.latency_ms = problem.LatencyMs(placement.stages);
  return placement;
}

}  // namespace strata
