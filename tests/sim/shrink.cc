#include "tests/sim/shrink.h"

#include <algorithm>

namespace strata::sim {
namespace {

// Leaves out runs of `list`'s entries, long ones first.
class Reducer {
 public:
  Reducer(Part* part, const std::function<bool(const Part&)>& fails, int* budget)
      : part_(part), fails_(fails), budget_(budget) {}

  // True if anything was left out.
  bool Reduce(std::vector<size_t> Part::*list) {
    bool reduced = false;
    for (size_t chunk = (part_->*list).size(); chunk > 0; chunk /= 2) {
      for (size_t begin = 0; begin < (part_->*list).size();) {
        if (!LeaveOut(list, begin, chunk)) {
          begin += chunk;
          continue;
        }
        reduced = true;
      }
    }
    return reduced;
  }

 private:
  bool LeaveOut(std::vector<size_t> Part::*list, size_t begin, size_t count) {
    if (*budget_ <= 0) {
      return false;
    }
    --*budget_;
    Part candidate = *part_;
    std::vector<size_t>& entries = candidate.*list;
    const size_t end = std::min(begin + count, entries.size());
    entries.erase(entries.begin() + static_cast<ptrdiff_t>(begin),
                  entries.begin() + static_cast<ptrdiff_t>(end));
    if (!fails_(candidate)) {
      return false;
    }
    *part_ = candidate;
    return true;
  }

  Part* const part_;
  const std::function<bool(const Part&)>& fails_;
  int* const budget_;
};

}  // namespace

Part Shrink(const Scenario& scenario, const std::function<bool(const Part&)>& fails, int budget) {
  Part part = Whole(scenario);
  Reducer reducer(&part, fails, &budget);
  while (budget > 0) {
    const bool faults = reducer.Reduce(&Part::faults);
    const bool requests = reducer.Reduce(&Part::requests);
    if (!faults && !requests) {
      break;
    }
  }
  return part;
}

}  // namespace strata::sim
