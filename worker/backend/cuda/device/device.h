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
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {

struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
// RESOURCE_EXHAUSTED (MEMORY_EXHAUSTED): says what for, how much, and what there is.
absl::Status MemoryExhausted(const std::string& what, uint64_t bytes, uint64_t free_bytes);

// One thread at a time.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "NVIDIA H200"
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
  // What a launch failed with, since this was asked last: UNAVAILABLE (DEVICE_FAILED). Does not
  // wait.
  virtual absl::Status LaunchStatus() = 0;
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
