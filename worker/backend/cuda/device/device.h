// A device as the CUDA backend uses it: its memory, and one stream on which all is done in order.
// Implemented by CUDA's runtime (cuda_device.h), and by the host for the emulation
// (emulated_device.h).
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {

struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
// RESOURCE_EXHAUSTED (MEMORY_EXHAUSTED): says what for, how much, and what there is.
absl::Status MemoryExhausted(const std::string& what, uint64_t bytes, uint64_t free_bytes);

// One thread at a time, but for Health.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "NVIDIA H200"
  virtual std::string kind() const = 0;  // "sm_90"
  virtual Stream stream() const = 0;
  virtual absl::StatusOr<DeviceMemory> Memory() = 0;

  // MemoryExhausted where it is short.
  virtual absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) = 0;
  virtual void Free(uint8_t* data) = 0;

  // On the stream. `from`, of the host, may be used again when it returns.
  virtual absl::Status CopyIn(void* to, const void* from, uint64_t bytes) = 0;
  // Waits for all that is on the stream, and then copies to the host.
  virtual absl::Status CopyOut(void* to, const void* from, uint64_t bytes) = 0;
  // On the stream; the two do not overlap.
  virtual absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) = 0;
  // What a launch failed with, since this was asked last. Does not wait.
  virtual absl::Status LaunchStatus() = 0;

  // Any of these may fail: UNAVAILABLE (DEVICE_FAILED) once the device is of no use any more, as
  // Health says then; INTERNAL (DEVICE_CALL_FAILED) where the error is the call's alone.
  // The first failure for good. Any thread; does not wait.
  absl::Status Health() const;

 protected:
  // The device is of no use from now on. What Health says.
  absl::Status FailForGood(const std::string& why);

 private:
  mutable Mutex mutex_;
  absl::Status failed_ STRATA_GUARDED_BY(mutex_);
};

// Memory of a device that outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  ~DeviceBuffer() { Reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    Reset();
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // Anything is in it. What it held is freed first.
  absl::Status Allocate(Device* device, uint64_t bytes, const std::string& what);
  void Reset();

  template <typename T = uint8_t>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_DEVICE_H_
