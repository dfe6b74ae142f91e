// How much of a disk is free, looked at on a thread of its own: who asks does not wait for a disk
// that hangs.
#ifndef STRATA_COMMON_PLATFORM_DISK_GAUGE_H_
#define STRATA_COMMON_PLATFORM_DISK_GAUGE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "common/mutex.h"

namespace strata {

class DiskGauge {
 public:
  // Of the disk that `directory` is on. Looks once before it returns, and calls `before_look`,
  // which may wait for the disk, before each look. Null: there is nothing to call.
  DiskGauge(std::string directory, std::chrono::nanoseconds look_every,
            std::function<void()> before_look = nullptr);
  ~DiskGauge();
  DiskGauge(const DiskGauge&) = delete;
  DiskGauge& operator=(const DiskGauge&) = delete;

  // When it was last looked at; nullopt: it could not be. Quick; any thread.
  std::optional<uint64_t> free_bytes() const;

 private:
  void Run();
  void Look();

  const std::string directory_;
  const std::chrono::nanoseconds look_every_;
  const std::function<void()> before_look_;
  mutable Mutex mutex_;
  CondVar stop_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::optional<uint64_t> free_bytes_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_DISK_GAUGE_H_
