#include "common/platform/disk_gauge.h"

#include <filesystem>
#include <utility>

namespace strata {

DiskGauge::DiskGauge(std::string directory, std::chrono::nanoseconds look_every,
                     std::function<void()> before_look)
    : directory_(std::move(directory)),
      look_every_(look_every),
      before_look_(std::move(before_look)) {
  Look();
  thread_ = std::thread([this] { Run(); });
}

DiskGauge::~DiskGauge() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.join();
}

std::optional<uint64_t> DiskGauge::free_bytes() const {
  MutexLock lock(&mutex_);
  return free_bytes_;
}

void DiskGauge::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!stopping_) {
        stop_.WaitFor(&mutex_, look_every_);
      }
      if (stopping_) {
        return;
      }
    }
    Look();
  }
}

void DiskGauge::Look() {
  if (before_look_ != nullptr) before_look_();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory_, error);
  MutexLock lock(&mutex_);
  free_bytes_ = error ? std::nullopt : std::optional<uint64_t>(space.available);
}

}  // namespace strata
