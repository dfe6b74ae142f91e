// What is wrong with the coordinator's disk, for `status`. It is looked at on a thread of its own,
// so that nothing else waits for a disk that hangs.
#ifndef STRATA_COORDINATOR_STORE_DISK_WATCH_H_
#define STRATA_COORDINATOR_STORE_DISK_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/platform/disk_gauge.h"
#include "coordinator/store/watched_store.h"
#include "strata/v1/admin.pb.h"

namespace strata {

struct DiskWatchOptions {
  std::string data_dir;
  uint64_t least_free_bytes = 0;  // Less is a problem; 0: never.
  nanoseconds look_every = std::chrono::seconds(2);
  // Called with each look, on its thread: for what else is written there, and failed. May be null.
  std::function<void()> probe = nullptr;
};

class DiskWatch {
 public:
  // `store` is not owned and outlives this. Looks once before it returns.
  DiskWatch(DiskWatchOptions options, WatchedStore* store);

  // Quick; any thread.
  std::vector<v1::Problem> Problems() const;

 private:
  const DiskWatchOptions options_;
  WatchedStore* const store_;
  const DiskGauge disk_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_DISK_WATCH_H_
