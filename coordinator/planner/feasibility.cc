#include "coordinator/planner/feasibility.h"

#include <algorithm>
#include <numeric>

#include "common/random.h"

namespace strata {
namespace {

// Subsets of this many nodes are all looked at.
constexpr size_t kCoverNodes = 10;
// Orders that are tried where there are more.
constexpr uint32_t kOrders = 64;
// Times that are listed; above it, the smallest one is found by halving.
constexpr double kMaxTimes = 1e6;

// Equal layers and no blocked link: only numbers count, whatever the order of the nodes.
Feasibility FitByNumbers(const PlacementProblem& problem) {
  const size_t n = problem.nodes();
  const uint32_t layers = problem.layers();
  Feasibility result;
  std::vector<uint64_t> middle(n);
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (problem.Capacity(i, true, true) >= layers) {
      result.feasible = true;
      result.stages = {{i, 0, layers}};
      return result;
    }
    middle[i] = problem.Capacity(i, false, false);
    sum += middle[i];
  }
  std::vector<uint64_t> tails(n);
  for (size_t last = 0; last < n; ++last) {
    tails[last] = problem.Capacity(last, false, true);
  }
  for (size_t first = 0; first < n; ++first) {
    const uint64_t head = problem.Capacity(first, true, false);
    for (size_t last = 0; last < n && head > 0; ++last) {
      const uint64_t tail = tails[last];
      if (last == first || tail == 0 || layers < 2 ||
          sum - middle[first] - middle[last] + head + tail < layers) {
        continue;
      }
      // First, others until it suffices, last.
      result.feasible = true;
      const auto begin = static_cast<uint32_t>(std::min<uint64_t>(head, layers - 1));
      result.stages = {{first, 0, begin}};
      uint32_t at = begin;
      for (size_t i = 0; i < n && at + tail < layers; ++i) {
        if (i != first && i != last && middle[i] > 0) {
          const auto take =
              static_cast<uint32_t>(std::min<uint64_t>(middle[i], layers - tail - at));
          result.stages.push_back({i, at, at + take});
          at += take;
        }
      }
      result.stages.push_back({last, at, layers});
      return result;
    }
  }
  return result;
}

// The largest end for which [begin, end) is allowed on the node, up to the last layer but one
// unless all of the rest fits; `begin` if none is. Bytes and times grow with the end.
uint32_t Reach(const PlacementProblem& problem, size_t node, uint32_t begin) {
  const uint32_t layers = problem.layers();
  if (begin < layers && problem.Allowed(node, begin, layers)) {
    return layers;
  }
  uint32_t low = begin;
  uint32_t high = layers - 1;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (problem.Allowed(node, begin, middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The longest prefix of layers that each set of nodes covers, by the node that it ends on. Longer
// is always at least as good: the stage after it begins later.
Feasibility Cover(const PlacementProblem& problem) {
  const size_t n = problem.nodes();
  const uint32_t layers = problem.layers();
  struct State {
    int32_t end = -1;
    int8_t before = -1;
    uint32_t begin = 0;
  };
  std::vector<State> states((size_t{1} << n) * n);
  const auto at = [&](uint32_t set, size_t last) -> State& { return states[set * n + last]; };
  const auto offer = [&](uint32_t set, size_t node, uint32_t begin, int before) {
    const uint32_t end = Reach(problem, node, begin);
    State& state = at(set, node);
    if (end > begin && static_cast<int32_t>(end) > state.end &&
        (end < layers || problem.HopMs(node, problem.coordinator()) < kNever)) {
      state = {static_cast<int32_t>(end), static_cast<int8_t>(before), begin};
    }
    return state.end == static_cast<int32_t>(layers);
  };
  const auto trace = [&](uint32_t set, size_t node) {
    Feasibility result;
    result.feasible = true;
    for (int i = static_cast<int>(node); i >= 0;) {
      const State& state = at(set, static_cast<size_t>(i));
      result.stages.push_back(
          {static_cast<size_t>(i), state.begin, static_cast<uint32_t>(state.end)});
      set &= ~(1u << i);
      i = state.before;
    }
    std::reverse(result.stages.begin(), result.stages.end());
    return result;
  };
  for (size_t i = 0; i < n; ++i) {
    if (problem.HopMs(problem.coordinator(), i) < kNever && offer(1u << i, i, 0, -1)) {
      return trace(1u << i, i);
    }
  }
  for (uint32_t set = 1; set < (1u << n); ++set) {
    for (size_t last = 0; last < n; ++last) {
      const State& state = at(set, last);
      if (state.end < 0) {
        continue;
      }
      for (size_t next = 0; next < n; ++next) {
        if ((set >> next & 1) == 0 && problem.HopMs(last, next) < kNever &&
            offer(set | 1u << next, next, static_cast<uint32_t>(state.end),
                  static_cast<int>(last))) {
          return trace(set | 1u << next, next);
        }
      }
    }
  }
  return {};
}

// Walks an order of nodes, each taking what it can; one that can take nothing is skipped.
std::optional<std::vector<PlacedStage>> Walk(const PlacementProblem& problem,
                                             const std::vector<size_t>& order) {
  std::vector<PlacedStage> stages;
  uint32_t at = 0;
  for (const size_t node : order) {
    const size_t from = stages.empty() ? problem.coordinator() : stages.back().node;
    const uint32_t end = Reach(problem, node, at);
    if (end == at || problem.HopMs(from, node) == kNever) {
      continue;
    }
    if (end == problem.layers()) {
      if (problem.HopMs(node, problem.coordinator()) == kNever) {
        continue;
      }
      stages.push_back({node, at, end});
      return stages;
    }
    stages.push_back({node, at, end});
    at = end;
  }
  return std::nullopt;
}

// Tries some orders: by memory, by speed, and by chance.
Feasibility Try(const PlacementProblem& problem) {
  std::vector<size_t> order(problem.nodes());
  Feasibility result;
  result.exact = false;
  for (uint32_t attempt = 0; attempt < kOrders; ++attempt) {
    std::iota(order.begin(), order.end(), size_t{0});
    const auto key = [&](size_t i) {
      switch (attempt) {
        case 0:
          return -static_cast<double>(problem.node(i).free_bytes);
        case 1:
          return problem.LayerMs(i);
        case 2:
          return static_cast<double>(problem.node(i).free_bytes);
        default:
          return UniformDouble(Philox(attempt, 0, static_cast<uint32_t>(i)));
      }
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    if (auto stages = Walk(problem, order)) {
      result.feasible = true;
      result.stages = *std::move(stages);
      return result;
    }
  }
  return result;
}

// Every time that a stage can take or that a transfer takes.
std::vector<double> Times(const PlacementProblem& problem) {
  std::vector<double> times;
  const uint32_t layers = problem.layers();
  for (size_t i = 0; i < problem.nodes(); ++i) {
    for (uint32_t begin = 0; begin < layers; ++begin) {
      // Among equal layers only the length counts, at the start, at the end, or between.
      if (problem.equal_layers() && begin > 1) {
        times.push_back(problem.StageMs(i, begin, layers));
        continue;
      }
      for (uint32_t end = begin + 1; end <= layers; ++end) {
        times.push_back(problem.StageMs(i, begin, end));
      }
    }
    for (size_t j = 0; j <= problem.nodes(); ++j) {
      times.push_back(problem.TransferMs(i, j));
      times.push_back(problem.TransferMs(j, i));
    }
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

// The first of `times` for which `holds`, which holds for all after it too, the last one included.
template <typename Holds>
std::optional<double> FirstTime(const std::vector<double>& times, Holds holds) {
  const auto found =
      std::partition_point(times.begin(), times.end(), [&](double time) { return !holds(time); });
  return found == times.end() ? std::nullopt : std::optional<double>(*found);
}

// The same of all numbers, to a part in a million.
template <typename Holds>
double FirstByHalving(const PlacementProblem& problem, Holds holds) {
  double high = 0;
  for (size_t i = 0; i < problem.nodes(); ++i) {
    high = std::max(high, problem.StageMs(i, 0, problem.layers()));
    for (size_t j = 0; j <= problem.nodes(); ++j) {
      high = std::max({high, problem.TransferMs(i, j), problem.TransferMs(j, i)});
    }
  }
  double low = 0;
  while (high - low > 1e-6 * high) {
    const double middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

Feasibility Feasible(const PlacementProblem& problem) {
  if (problem.equal_layers() && !problem.AnyHopBlocked()) {
    return FitByNumbers(problem);
  }
  return problem.nodes() <= kCoverNodes ? Cover(problem) : Try(problem);
}

std::optional<uint64_t> MostPages(PlacementProblem problem, uint64_t least, bool* exact) {
  *exact = true;
  const auto fits = [&](uint64_t pages) {
    problem.pages = pages;
    const Feasibility found = Feasible(problem);
    *exact = *exact && found.exact;
    return found.feasible;
  };
  if (!fits(least)) {
    return std::nullopt;
  }
  uint64_t low = least;
  uint64_t high = std::max(least + 1, uint64_t{1024});
  const uint64_t end = std::max(problem.UsefulPages(), least) + 1;
  while (high < end && fits(high)) {
    low = high;
    high *= 2;
  }
  high = std::min(high, end);
  while (low + 1 < high) {
    const uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::optional<SlowestBound> SmallestSlowest(PlacementProblem problem) {
  bool exact = true;
  const auto holds = [&](double time) {
    problem.slowest_ms = time;
    const Feasibility found = Feasible(problem);
    exact = exact && found.exact;
    return found.feasible;
  };
  if (!holds(kNever)) {
    return std::nullopt;
  }
  const double layers = problem.layers();
  const double listed = problem.equal_layers() ? 4 * layers : layers * layers / 2;
  SlowestBound bound;
  if (static_cast<double>(problem.nodes()) * listed <= kMaxTimes) {
    bound.ms = *FirstTime(Times(problem), holds);
  } else {
    bound.ms = FirstByHalving(problem, holds);
    exact = false;
  }
  bound.lower_ms = bound.ms;
  if (!exact) {
    // Without links, and with every layer as on the node that is fastest for all of them together:
    // k nodes cannot share the work better than in proportion to their speeds.
    double rate = 0;
    double extra = kNever;
    problem.slowest_ms = kNever;
    for (size_t i = 0; i < problem.nodes(); ++i) {
      const double all =
          problem.StageMs(i, 0, problem.layers()) - problem.EmbedMs(i) - problem.HeadMs(i);
      rate += 1 / std::max(all, 1e-300);
      extra = std::min(extra, problem.HeadMs(i));
    }
    bound.lower_ms = std::min(bound.ms, std::max(1 / rate, extra));
  }
  return bound;
}

uint64_t MissingBytes(const PlacementProblem& problem, size_t node) {
  uint64_t high = problem.StageBytes(node, 0, problem.layers());
  uint64_t low = 0;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (Feasible(problem.WithMoreMemory(node, middle)).feasible) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace strata
