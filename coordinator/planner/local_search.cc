#include "coordinator/planner/local_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/random.h"
#include "coordinator/planner/feasibility.h"
#include "coordinator/planner/fill.h"

namespace strata {
namespace {

// Steps, of some two nanoseconds each.
constexpr uint64_t kMaxSteps = 60'000'000;

using Order = std::vector<size_t>;

class LocalSearch {
 public:
  LocalSearch(const PlacementProblem& problem, double good_enough_ms)
      : problem_(problem), filler_(problem), good_enough_ms_(good_enough_ms) {}

  Placement Run(uint32_t starts) {
    Improve(FromFeasible());
    for (uint32_t start = 0; start < starts && !Done(); ++start) {
      Improve(StartingOrder(start));
    }
    Placement placement;
    if (best_ms_ < kNever) {
      placement.stages = Stages(best_);
      placement.latency_ms = problem_.LatencyMs(placement.stages);
    }
    return placement;
  }

  double BestInsertion(const Order& order, size_t node) {
    double best = kNever;
    for (size_t at = 0; at <= order.size(); ++at) {
      Order changed = order;
      changed.insert(changed.begin() + static_cast<ptrdiff_t>(at), node);
      best = std::min(best, Ms(changed));
    }
    return best;
  }

 private:
  bool Done() const { return steps_ > kMaxSteps || best_ms_ <= good_enough_ms_; }

  double HopsMs(const Order& order) const {
    double ms = problem_.HopMs(problem_.coordinator(), order.front()) +
                problem_.HopMs(order.back(), problem_.coordinator());
    for (size_t i = 1; i < order.size(); ++i) {
      ms += problem_.HopMs(order[i - 1], order[i]);
    }
    return ms;
  }

  // Time of a token over all nodes of the order; kNever if it cannot be.
  double Ms(const Order& order) {
    if (order.empty() || order.size() > problem_.layers()) {
      return kNever;
    }
    const double hops = HopsMs(order);
    if (hops == kNever) {
      return kNever;
    }
    return hops + (problem_.equal_layers() ? FillMs(order) : SplitMs(order, nullptr));
  }

  double FillMs(const Order& order) {
    steps_ += 30 + 15 * order.size();
    sorted_ = order;
    std::sort(sorted_.begin(), sorted_.end(),
              [this](size_t a, size_t b) { return filler_.rank(a) < filler_.rank(b); });
    return filler_.Ms(sorted_, order.front(), order.back());
  }

  // The least compute time of layers split over the order; `ends` takes the ends of its stages.
  double SplitMs(const Order& order, std::vector<uint32_t>* ends) {
    const uint32_t layers = problem_.layers();
    const size_t k = order.size();
    const size_t row = layers + 1;
    least_.assign((k + 1) * row, kNever);
    cut_.assign((k + 1) * row, 0);
    least_[0] = 0;
    for (size_t j = 0; j < k; ++j) {
      for (uint32_t begin = 0; begin < layers; ++begin) {
        const double ms = least_[j * row + begin];
        for (uint32_t end = begin + 1; ms < kNever && end <= layers; ++end) {
          steps_ += 3;
          if (!problem_.Allowed(order[j], begin, end)) {
            break;
          }
          const double total = ms + problem_.StageMs(order[j], begin, end);
          if (total < least_[(j + 1) * row + end]) {
            least_[(j + 1) * row + end] = total;
            cut_[(j + 1) * row + end] = begin;
          }
        }
      }
    }
    const double ms = least_[k * row + layers];
    if (ends != nullptr && ms < kNever) {
      ends->assign(k, layers);
      for (size_t j = k; j > 1; --j) {
        (*ends)[j - 2] = cut_[j * row + (*ends)[j - 1]];
      }
    }
    return ms;
  }

  std::vector<PlacedStage> Stages(const Order& order) {
    if (problem_.equal_layers()) {
      return filler_.Stages(order);
    }
    std::vector<uint32_t> ends;
    SplitMs(order, &ends);
    std::vector<PlacedStage> stages;
    uint32_t at = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      stages.push_back({order[i], at, ends[i]});
      at = ends[i];
    }
    return stages;
  }

  Order FromFeasible() const {
    Order order;
    for (const PlacedStage& stage : Feasible(problem_).stages) {
      order.push_back(stage.node);
    }
    return order;
  }

  // As few nodes as suffice of some ranking: by speed, by memory, by chance.
  Order StartingOrder(uint32_t start) {
    Order ranking(problem_.nodes());
    std::iota(ranking.begin(), ranking.end(), size_t{0});
    const auto key = [&](size_t i) {
      if (start == 0) {
        return problem_.LayerMs(i);
      }
      if (start == 1) {
        return -static_cast<double>(problem_.node(i).free_bytes);
      }
      const double chance = UniformDouble(Philox(start, 0, static_cast<uint32_t>(i)));
      return start % 2 == 0 ? chance : problem_.LayerMs(i) * (0.5 + chance);
    };
    std::stable_sort(ranking.begin(), ranking.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    Order order;
    for (const size_t node : ranking) {
      order.push_back(node);
      if (Ms(order) < kNever) {
        break;
      }
    }
    return order;
  }

  // Takes `changed` if it is better.
  bool Offer(const Order& changed) {
    const double ms = Ms(changed);
    if (ms >= now_ms_ - 1e-12 * now_ms_) {
      return false;
    }
    now_ms_ = ms;
    now_ = changed;
    return true;
  }

  bool TryInsertReplace() {
    Order changed;
    for (size_t node = 0; node < problem_.nodes(); ++node) {
      if (std::find(now_.begin(), now_.end(), node) != now_.end()) {
        continue;
      }
      for (size_t at = 0; at <= now_.size(); ++at) {
        changed = now_;
        changed.insert(changed.begin() + static_cast<ptrdiff_t>(at), node);
        if (Offer(changed)) {
          return true;
        }
        if (at < now_.size()) {
          changed.erase(changed.begin() + static_cast<ptrdiff_t>(at) + 1);
          if (Offer(changed)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  bool TryDropMove() {
    Order changed;
    for (size_t at = 0; at < now_.size(); ++at) {
      Order without = now_;
      without.erase(without.begin() + static_cast<ptrdiff_t>(at));
      if (Offer(without)) {
        return true;
      }
      for (size_t to = 0; to <= without.size(); ++to) {
        changed = without;
        changed.insert(changed.begin() + static_cast<ptrdiff_t>(to), now_[at]);
        if (to != at && Offer(changed)) {
          return true;
        }
      }
    }
    return false;
  }

  bool TrySwapReverse() {
    Order changed;
    for (size_t i = 0; i < now_.size(); ++i) {
      for (size_t j = i + 1; j < now_.size(); ++j) {
        changed = now_;
        std::swap(changed[i], changed[j]);
        if (Offer(changed)) {
          return true;
        }
        changed = now_;
        std::reverse(changed.begin() + static_cast<ptrdiff_t>(i),
                     changed.begin() + static_cast<ptrdiff_t>(j) + 1);
        if (Offer(changed)) {
          return true;
        }
      }
    }
    return false;
  }

  void Improve(Order order) {
    now_ = std::move(order);
    now_ms_ = Ms(now_);
    while (now_ms_ < kNever && !Done()) {
      if (!TryInsertReplace() && !TryDropMove() && !TrySwapReverse()) {
        break;
      }
    }
    if (now_ms_ < best_ms_) {
      best_ms_ = now_ms_;
      best_ = now_;
    }
  }

  const PlacementProblem& problem_;
  const Filler filler_;
  const double good_enough_ms_;
  uint64_t steps_ = 0;
  Order now_;
  double now_ms_ = kNever;
  Order best_;
  double best_ms_ = kNever;
  Order sorted_;
  std::vector<double> least_;
  std::vector<uint32_t> cut_;
};

}  // namespace

Placement SearchLocally(const PlacementProblem& problem, double good_enough_ms, uint32_t starts) {
  return LocalSearch(problem, good_enough_ms).Run(starts);
}

double LatencyWithNode(const PlacementProblem& problem, const std::vector<PlacedStage>& stages,
                       size_t node) {
  Order order;
  for (const PlacedStage& stage : stages) {
    order.push_back(stage.node);
  }
  return LocalSearch(problem, 0).BestInsertion(order, node);
}

}  // namespace strata
