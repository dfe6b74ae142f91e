// The threads on which clients' texts are read, rendered and tokenized.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_TEXT_THREADS_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_TEXT_THREADS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "common/rpc/fair_calls.h"
#include "coordinator/keys/caller.h"

namespace strata {

// Large texts have half the cores at most, and each other text soon a thread.
inline std::shared_ptr<FairCalls> NewTextThreads(
    size_t max_waiting_calls, uint64_t max_waiting_bytes = FairCallsOptions().most_bytes) {
  const size_t cores = std::thread::hardware_concurrency();
  return std::make_shared<FairCalls>(FairCallsOptions{
      .threads = std::clamp<size_t>(cores, 4, 16),
      .large_threads = std::clamp<size_t>(cores / 2, 1, 8),
      .waiting = max_waiting_calls,
      .name = "waiting_calls",
      .hint = "try again in a moment, or raise --max-waiting-calls of strata-coordinator",
      .most_bytes = max_waiting_bytes,
      .bytes_hint = "try again in a moment, or raise --max-waiting-texts of strata-coordinator"});
}

// By whom they are shared; null: of who needs no key.
inline std::string KeyOf(const Caller* caller) { return caller == nullptr ? "" : caller->id(); }

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_TEXT_THREADS_H_
