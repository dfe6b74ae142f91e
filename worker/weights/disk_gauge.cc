#include "worker/weights/disk_gauge.h"

#include <chrono>
#include <filesystem>
#include <utility>

namespace strata {
namespace {

constexpr std::chrono::milliseconds kLookEvery{500};

}  // namespace

DiskGauge::DiskGauge(std::string directory) : directory_(std::move(directory)) {
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
        stop_.WaitFor(&mutex_, kLookEvery);
      }
      if (stopping_) {
        return;
      }
    }
    Look();
  }
}

void DiskGauge::Look() {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory_, error);
  MutexLock lock(&mutex_);
  free_bytes_ = error ? std::nullopt : std::optional<uint64_t>(space.available);
}

}  // namespace strata
