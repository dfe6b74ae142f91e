// How a rank waits for others over sockets.
#ifndef STRATA_WORKER_RANKS_SOCKETS_PAUSE_RANK_H_
#define STRATA_WORKER_RANKS_SOCKETS_PAUSE_RANK_H_

#include <chrono>
#include <cstdint>
#include <thread>

namespace strata {

// RankTimes::pause: within a step the others come soon, and it looks again at once; then it gives
// its core away; between steps it sleeps.
inline void PauseRank(uint64_t idle_rounds) {
  constexpr uint64_t kLooks = 2'000;    // Some hundred microseconds.
  constexpr uint64_t kYields = 20'000;  // Some milliseconds.
  if (idle_rounds < kLooks) {
    return;
  }
  if (idle_rounds < kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_PAUSE_RANK_H_
