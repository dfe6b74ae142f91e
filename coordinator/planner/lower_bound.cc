#include "coordinator/planner/lower_bound.h"

#include <algorithm>
#include <array>
#include <vector>

namespace strata {
namespace {

// Steps that take about 50 ms.
constexpr double kMaxBoundSteps = 5e7;

// A stage's share of the hops, by its role: bit 0 is the first stage, bit 1 the last.
using RoleHops = std::array<double, 4>;

// The cheapest hop from (or to) each node, among nodes.
struct CheapestHops {
  std::vector<double> from;
  std::vector<double> to;
};

CheapestHops FindCheapest(const PlacementProblem& problem) {
  const size_t n = problem.nodes();
  CheapestHops hops{std::vector<double>(n, kNever), std::vector<double>(n, kNever)};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i != j) {
        hops.from[i] = std::min(hops.from[i], problem.HopMs(i, j));
        hops.to[j] = std::min(hops.to[j], problem.HopMs(i, j));
      }
    }
  }
  return hops;
}

// The least sum over nodes of layers, embedding, head and hops(node, role), each node in at most
// one role: a minimum over (layers given, roles taken).
template <typename Hops>
double Assign(const PlacementProblem& problem, Hops hops) {
  const uint32_t layers = problem.layers();
  const size_t row = layers + 1;
  std::vector<double> least(4 * row, kNever);
  least[0] = 0;
  std::vector<double> next;
  for (size_t node = 0; node < problem.nodes(); ++node) {
    const RoleHops shares = hops(node);
    next = least;
    for (uint32_t role = 0; role < 4; ++role) {
      const bool first = (role & 1) != 0;
      const bool last = (role & 2) != 0;
      const uint32_t capacity = problem.Capacity(node, first, last);
      const double fixed =
          shares[role] + (first ? problem.EmbedMs(node) : 0) + (last ? problem.HeadMs(node) : 0);
      for (uint32_t taken = 0; fixed < kNever && taken < 4; ++taken) {
        if ((taken & role) != 0) {
          continue;
        }
        const double* from = &least[taken * row];
        double* to = &next[(taken | role) * row];
        for (uint32_t done = 0; done < layers; ++done) {
          const uint32_t most = std::min(capacity, layers - done);
          for (uint32_t count = 1; from[done] < kNever && count <= most; ++count) {
            to[done + count] =
                std::min(to[done + count], from[done] + fixed + count * problem.LayerMs(node));
          }
        }
      }
    }
    least.swap(next);
  }
  return least[3 * row + layers];
}

// Any layers: each on the node that is fastest for it, and the cheapest way in and out.
double EachLayerBest(const PlacementProblem& problem) {
  double in = kNever;
  double out = kNever;
  double embed = kNever;
  double head = kNever;
  for (size_t i = 0; i < problem.nodes(); ++i) {
    in = std::min(in, problem.HopMs(problem.coordinator(), i));
    out = std::min(out, problem.HopMs(i, problem.coordinator()));
    embed = std::min(embed, problem.EmbedMs(i));
    head = std::min(head, problem.HeadMs(i));
  }
  double sum = in + out + embed + head;
  for (uint32_t l = 0; l < problem.layers(); ++l) {
    double best = kNever;
    for (size_t i = 0; i < problem.nodes(); ++i) {
      const double ms = problem.StageMs(i, l, l + 1) - (l == 0 ? problem.EmbedMs(i) : 0) -
                        (l + 1 == problem.layers() ? problem.HeadMs(i) : 0);
      best = std::min(best, ms);
    }
    sum += best;
  }
  return sum;
}

}  // namespace

double LatencyLowerBoundMs(const PlacementProblem& problem) {
  const double layers = problem.layers();
  double bound = EachLayerBest(problem);
  if (!problem.equal_layers() ||
      9.0 * static_cast<double>(problem.nodes()) * layers * layers > kMaxBoundSteps) {
    return bound;
  }
  const CheapestHops hops = FindCheapest(problem);
  const size_t coordinator = problem.coordinator();
  const auto in = [&](size_t i) { return problem.HopMs(coordinator, i); };
  const auto out = [&](size_t i) { return problem.HopMs(i, coordinator); };
  // Every node pays the hop that leaves it.
  const double leaving = Assign(problem, [&](size_t i) {
    return RoleHops{hops.from[i], in(i) + hops.from[i], out(i), in(i) + out(i)};
  });
  // Every node pays half of the hop that reaches it and half of the one that leaves it.
  const double halves = Assign(problem, [&](size_t i) {
    return RoleHops{(hops.to[i] + hops.from[i]) / 2, in(i) + hops.from[i] / 2,
                    hops.to[i] / 2 + out(i), in(i) + out(i)};
  });
  return std::max({bound, leaving, halves});
}

}  // namespace strata
