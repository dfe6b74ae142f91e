#include "coordinator/planner/fill.h"

#include <algorithm>
#include <numeric>

namespace strata {

Filler::Filler(const PlacementProblem& problem) : problem_(problem) {
  const size_t n = problem.nodes();
  capacity_.resize(n);
  by_speed_.resize(n);
  rank_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    for (const bool first : {false, true}) {
      for (const bool last : {false, true}) {
        capacity_[i][(first ? 1 : 0) + (last ? 2 : 0)] = problem.Capacity(i, first, last);
      }
    }
  }
  std::iota(by_speed_.begin(), by_speed_.end(), size_t{0});
  std::stable_sort(by_speed_.begin(), by_speed_.end(),
                   [&](size_t a, size_t b) { return problem.LayerMs(a) < problem.LayerMs(b); });
  for (size_t i = 0; i < n; ++i) {
    rank_[by_speed_[i]] = static_cast<uint32_t>(i);
  }
}

double Filler::Ms(std::span<const size_t> by_speed, size_t first, size_t last) const {
  const auto layers = static_cast<int64_t>(problem_.layers());
  int64_t left = layers - static_cast<int64_t>(by_speed.size());
  if (left < 0) {
    return kNever;
  }
  double ms = problem_.EmbedMs(first) + problem_.HeadMs(last);
  for (const size_t node : by_speed) {
    const int64_t capacity = Capacity(node, node == first, node == last);
    if (capacity == 0) {
      return kNever;
    }
    const int64_t more = std::min(left, capacity - 1);
    left -= more;
    ms += static_cast<double>(more + 1) * problem_.LayerMs(node);
  }
  return left == 0 ? ms : kNever;
}

std::vector<PlacedStage> Filler::Stages(std::span<const size_t> order) const {
  std::vector<size_t> sorted(order.begin(), order.end());
  std::sort(sorted.begin(), sorted.end(),
            [this](size_t a, size_t b) { return rank_[a] < rank_[b]; });
  std::vector<uint32_t> take(problem_.nodes(), 0);
  uint32_t left = problem_.layers() - static_cast<uint32_t>(order.size());
  for (const size_t node : sorted) {
    const uint32_t capacity = Capacity(node, node == order.front(), node == order.back());
    const uint32_t more = std::min(left, capacity - 1);
    left -= more;
    take[node] = more + 1;
  }
  std::vector<PlacedStage> stages;
  uint32_t at = 0;
  for (const size_t node : order) {
    stages.push_back({node, at, at + take[node]});
    at += take[node];
  }
  return stages;
}

}  // namespace strata
