// Looks at the coordinator's disk now and then, on a thread of its own, so that nothing else waits
// for a disk that hangs: what is wrong with it, for `status`.
#ifndef STRATA_COORDINATOR_STORE_DISK_WATCH_H_
#define STRATA_COORDINATOR_STORE_DISK_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/store/watched_store.h"
#include "strata/v1/admin.pb.h"

namespace strata {

struct DiskWatchOptions {
  std::string data_dir;
  uint64_t least_free_bytes = uint64_t{16} << 20;  // Less is a problem; 0: never.
  nanoseconds look_every = std::chrono::seconds(2);
};

class DiskWatch {
 public:
  // `store` is not owned and outlives this. Looks once before it returns.
  DiskWatch(DiskWatchOptions options, WatchedStore* store);
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  // Quick; any thread.
  std::vector<v1::Problem> Problems() const;

 private:
  void Run();
  void Look();

  const DiskWatchOptions options_;
  WatchedStore* const store_;
  mutable Mutex mutex_;
  CondVar stop_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::optional<uint64_t> free_bytes_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_DISK_WATCH_H_
