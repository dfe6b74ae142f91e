// For what crosses threads and sockets.
#ifndef STRATA_TESTS_COMMON_RPC_EVENTUALLY_H_
#define STRATA_TESTS_COMMON_RPC_EVENTUALLY_H_

#include <chrono>
#include <functional>
#include <thread>

namespace strata {

// Whether the condition comes true within 20 s. Once it was it is not asked again: to ask may be a
// call.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace strata

#endif  // STRATA_TESTS_COMMON_RPC_EVENTUALLY_H_
