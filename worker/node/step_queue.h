#ifndef STRATA_WORKER_NODE_STEP_QUEUE_H_
#define STRATA_WORKER_NODE_STEP_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "common/check.h"

namespace strata {

// Which step a stage computes next: one is at hand at most, and they are computed in the order in
// which they came. Neither computes nor waits; not thread-safe.
template <typename Step>
class StepQueue {
 public:
  enum class Added {
    kRefused,  // `max_waiting` steps wait, or the queue has stopped: the caller keeps the step.
    kWaits,    // Next will give it.
    kAtHand,   // The caller keeps the step, computes it and calls Done or Return.
  };

  explicit StepQueue(size_t max_waiting) : max_waiting_(max_waiting) {}

  // `may_begin`: whether the caller would compute the step at once, which it gets to do only where
  // none is at hand and none waits.
  Added Add(Step* step, bool may_begin) {
    if (stopped_ || waiting_.size() >= max_waiting_) {
      return Added::kRefused;
    }
    if (may_begin && !at_hand_ && waiting_.empty()) {
      at_hand_ = true;
      return Added::kAtHand;
    }
    waiting_.push_back(std::move(*step));
    return Added::kWaits;
  }

  // The step that has waited longest, which is at hand now. None while another is.
  std::optional<Step> Next() {
    if (at_hand_ || waiting_.empty()) {
      return std::nullopt;
    }
    std::optional<Step> step(std::move(waiting_.front()));
    waiting_.pop_front();
    at_hand_ = true;
    return step;
  }

  // The step at hand was computed.
  void Done() {
    STRATA_CHECK(at_hand_);
    at_hand_ = false;
  }

  // The step at hand could not begin, and waits again, before all others. Dropped after Stop.
  void Return(Step step) {
    Done();
    if (!stopped_) {
      waiting_.push_front(std::move(step));
    }
  }

  // Drops the steps that wait.
  void Clear() { waiting_.clear(); }

  // Drops the steps that wait, and takes none any more.
  void Stop() {
    stopped_ = true;
    Clear();
  }

  bool stopped() const { return stopped_; }
  bool at_hand() const { return at_hand_; }
  // Whether Next would give a step.
  bool ready() const { return !at_hand_ && !waiting_.empty(); }
  size_t waiting() const { return waiting_.size(); }

 private:
  const size_t max_waiting_;
  std::deque<Step> waiting_;
  bool at_hand_ = false;
  bool stopped_ = false;
};

}  // namespace strata

#endif  // STRATA_WORKER_NODE_STEP_QUEUE_H_
