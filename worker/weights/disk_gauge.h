// How much of a disk is free, looked at on a thread of its own: who asks does not wait for a disk
// that hangs.
#ifndef STRATA_WORKER_WEIGHTS_DISK_GAUGE_H_
#define STRATA_WORKER_WEIGHTS_DISK_GAUGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "common/mutex.h"

namespace strata {

class DiskGauge {
 public:
  // Of the disk that `directory` is on. Looks once before it returns.
  explicit DiskGauge(std::string directory);
  ~DiskGauge();
  DiskGauge(const DiskGauge&) = delete;
  DiskGauge& operator=(const DiskGauge&) = delete;

  // When it was last looked at; nullopt: it could not be. Quick; any thread.
  std::optional<uint64_t> free_bytes() const;

 private:
  void Run();
  void Look();

  const std::string directory_;
  mutable Mutex mutex_;
  CondVar stop_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::optional<uint64_t> free_bytes_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_DISK_GAUGE_H_
