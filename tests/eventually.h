// Waiting for what crosses threads, processes and sockets.
#ifndef STRATA_TESTS_EVENTUALLY_H_
#define STRATA_TESTS_EVENTUALLY_H_

#include <chrono>
#include <functional>
#include <thread>

namespace strata {

// After this a test that waits gives up and fails. It is there only so that nothing hangs: what is
// waited for comes far sooner on any machine, however busy, and no test depends on how soon.
inline constexpr std::chrono::seconds kGiveUpAfter{300};

// Whether the condition comes true before kGiveUpAfter. Once it was it is not asked again: to ask
// may be a call.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kGiveUpAfter;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace strata

#endif  // STRATA_TESTS_EVENTUALLY_H_
