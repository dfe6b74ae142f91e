// Ranks of a collective in tests, each on a thread of its own.
#ifndef STRATA_TESTS_WORKER_COLLECTIVE_ON_EACH_RANK_H_
#define STRATA_TESTS_WORKER_COLLECTIVE_ON_EACH_RANK_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "worker/collective/collective.h"

namespace strata {

// body(end) of each rank on a thread of its own; what each returned.
inline std::vector<absl::Status> OnEachRank(const std::vector<std::unique_ptr<Collective>>& ends,
                                            const std::function<absl::Status(Collective*)>& body) {
  std::vector<absl::Status> statuses(ends.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = body(ends[rank].get()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return statuses;
}

}  // namespace strata

#endif  // STRATA_TESTS_WORKER_COLLECTIVE_ON_EACH_RANK_H_
