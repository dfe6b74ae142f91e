// What the next step of a stage will take, by what those before took.
#ifndef STRATA_WORKER_SERVICE_STEP_COST_H_
#define STRATA_WORKER_SERVICE_STEP_COST_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace strata {

// One thread at a time.
class StepCost {
 public:
  void Add(uint32_t rows, std::chrono::duration<double> took) {
    row_s_[next_++ % row_s_.size()] = took.count() / std::max(rows, 1U);
  }

  // Whether a step of `rows` will take `limit` at most: by the median of the last ones, since one
  // of them may have lost its core for a while. Not before there are as many.
  bool Within(uint32_t rows, std::chrono::duration<double> limit) const {
    if (next_ < row_s_.size()) {
      return false;
    }
    auto sorted = row_s_;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    return sorted[sorted.size() / 2] * std::max(rows, 1U) <= limit.count();
  }

 private:
  std::array<double, 5> row_s_{};
  size_t next_ = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_STEP_COST_H_
