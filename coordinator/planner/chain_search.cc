#include "coordinator/planner/chain_search.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

// The most pages from `low` on, with which it fits, that `fits` allows.
template <typename Fits>
uint64_t MostThatFit(uint64_t low, uint64_t above, const Fits& fits) {
  while (low + 1 < above) {
    const uint64_t middle = low + (above - low) / 2;
    (fits(middle) ? low : above) = middle;
  }
  return low;
}

}  // namespace

uint64_t ChainSearch::MostPages() const {
  return std::min(groups_.firsts().MaxPages(), groups_.firsts().UsefulPages());
}

std::optional<Chain> ChainSearch::Run(uint64_t pages) const {
  std::optional<Chain> best = With(pages);
  if (goal_ == v1::PLAN_GOAL_CAPACITY && best.has_value()) {
    best = With(MostThatFit(pages, MostPages() + 1,
                            [this](uint64_t more) { return With(more).has_value(); }));
  }
  return best;
}

Chain ChainSearch::Given(std::vector<PlacedStage> stages, uint64_t pages) const {
  if (goal_ == v1::PLAN_GOAL_CAPACITY) {
    pages = MostThatFit(pages, MostPages() + 1, [&](uint64_t more) {
      return std::all_of(stages.begin(), stages.end(), [&](const PlacedStage& stage) {
        return groups_.Fits(stage.node, stage.begin, stage.end, more);
      });
    });
  }
  return Timed(std::move(stages), pages);
}

Chain ChainSearch::Timed(std::vector<PlacedStage> stages, uint64_t pages) const {
  Chain chain = {.stages = std::move(stages), .pages = pages, .latency_ms = 0, .slowest_ms = 0};
  size_t at = groups_.size();
  for (const PlacedStage& stage : chain.stages) {
    const double ms = groups_.StageMs(stage.node, stage.begin, stage.end);
    chain.latency_ms += groups_.firsts().HopMs(at, stage.node) + ms;
    chain.slowest_ms =
        std::max({chain.slowest_ms, groups_.firsts().TransferMs(at, stage.node), ms});
    at = stage.node;
  }
  chain.latency_ms += groups_.firsts().HopMs(at, groups_.size());
  return chain;
}

double ChainSearch::Joined(double cost, double more) const {
  return goal_ == v1::PLAN_GOAL_THROUGHPUT ? std::max(cost, more) : cost + more;
}

double ChainSearch::Hop(size_t from, size_t to) const {
  return goal_ == v1::PLAN_GOAL_THROUGHPUT ? groups_.firsts().TransferMs(from, to)
                                           : groups_.firsts().HopMs(from, to);
}

std::optional<Chain> ChainSearch::With(uint64_t pages) const {
  const size_t none = groups_.size();
  // [group][layers]: so many layers are placed, the last of them on the group.
  std::vector<std::vector<State>> states(none, std::vector<State>(layers_ + 1));
  for (size_t g = 0; g < none; ++g) {
    for (uint32_t begin = 0; begin < layers_; ++begin) {
      const State from = Entry(states, g, begin);
      for (uint32_t end = begin + 1;
           from.cost < kNever && end <= layers_ && groups_.Fits(g, begin, end, pages); ++end) {
        const double cost = Joined(from.cost, groups_.StageMs(g, begin, end));
        if (cost < states[g][end].cost) {
          states[g][end] = {cost, from.before, begin};
        }
      }
    }
  }
  size_t last = none;
  double least = kNever;
  for (size_t g = 0; g < none; ++g) {
    const double cost = Joined(states[g][layers_].cost, Hop(g, none));
    if (cost < least) {
      least = cost;
      last = g;
    }
  }
  if (last == none) {
    return std::nullopt;
  }
  std::vector<PlacedStage> stages;
  uint32_t end = layers_;
  for (size_t g = last; g != none;) {
    const State& state = states[g][end];
    stages.insert(stages.begin(), {g, state.begin, end});
    end = state.begin;
    g = state.before;
  }
  return Timed(std::move(stages), pages);
}

ChainSearch::State ChainSearch::Entry(const std::vector<std::vector<State>>& states, size_t g,
                                      uint32_t begin) const {
  const size_t none = groups_.size();
  if (begin == 0) {
    return {Joined(0, Hop(none, g)), none, 0};
  }
  State best;
  for (size_t before = 0; before < g; ++before) {
    const double cost = Joined(states[before][begin].cost, Hop(before, g));
    if (cost < best.cost) {
      best = {cost, before, begin};
    }
  }
  return best;
}

}  // namespace strata
