// Whether a rank waits for another one now.
#ifndef STRATA_WORKER_RANKS_NOTED_WAITS_H_
#define STRATA_WORKER_RANKS_NOTED_WAITS_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "worker/ranks/rank_channels.h"

namespace strata {

// Any thread.
class NotedWaits {
 public:
  NotedWaits() = default;
  NotedWaits(const NotedWaits&) = delete;
  NotedWaits& operator=(const NotedWaits&) = delete;

  // The same times, but that pauses are noted here. Once; this outlives who uses them.
  RankTimes Noting(RankTimes times) {
    STRATA_CHECK(times.clock != nullptr);
    clock_ = times.clock;
    times.pause = [this, pause = std::move(times.pause)](uint64_t idle_rounds) {
      paused_at_ns_.store(clock_->Now().count(), std::memory_order_relaxed);
      if (pause) {
        pause(idle_rounds);
      }
    };
    return times;
  }
  // Whether there was a pause just now.
  bool waits() const {
    const int64_t at_ns = paused_at_ns_.load(std::memory_order_relaxed);
    return at_ns != kNone && clock_->Now() - nanoseconds(at_ns) < kSeen;
  }

 private:
  // A wait without a pause for so long is over.
  static constexpr nanoseconds kSeen = milliseconds(500);
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

  const Clock* clock_ = nullptr;
  std::atomic<int64_t> paused_at_ns_{kNone};
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_NOTED_WAITS_H_
