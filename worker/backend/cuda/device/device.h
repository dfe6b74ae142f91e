// A device as the CUDA backend uses it: its memory, a stream on which all is done in order, and one
// beside it for copies. Implemented by CUDA's runtime (cuda_device.h), and by the host for the
// emulation (emulated_device.h).
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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
// Rows in a device's memory that begin so many bytes apart.
struct DeviceRows {
  uint8_t* data = nullptr;
  size_t stride = 0;
};
// RESOURCE_EXHAUSTED (MEMORY_EXHAUSTED): says what for, how much, and what there is of which
// device.
absl::Status MemoryExhausted(const std::string& what, uint64_t bytes, uint64_t free_bytes,
                             const std::string& device);

// A place in a stream (cudaEvent_t), and launches that were recorded (cudaGraphExec_t).
using Event = void*;
using Graph = void*;

// Any thread. Of the stream of kernels one at a time: a graph is made of all that is put there
// while one records it.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "NVIDIA H200"
  virtual std::string kind() const = 0;  // "sm_90"
  // Which of the process's devices it is, in errors.
  std::string label() const { return "GPU " + std::to_string(index()); }
  virtual uint32_t index() const = 0;  // As the process counts its devices, from 0.
  // What this thread calls of libraries is for this device from now on. Calls of this class need
  // it where the process has several devices.
  virtual absl::Status MakeCurrent() = 0;
  // Of kernels; and of copies that are done beside them.
  virtual Stream stream() const = 0;
  virtual Stream copies() const = 0;
  virtual absl::StatusOr<DeviceMemory> Memory() = 0;

  // MemoryExhausted where it is short.
  virtual absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) = 0;
  virtual void Free(uint8_t* data) = 0;
  // Memory of the host that stays where it is: only with it copies are done while the host goes on.
  // RESOURCE_EXHAUSTED (MEMORY_EXHAUSTED) where the system gives none.
  virtual absl::StatusOr<uint8_t*> AllocatePinned(uint64_t bytes) = 0;
  virtual void FreePinned(uint8_t* data) = 0;

  // On a stream; `from`, and `to`, of the host, are pinned, and stay as they are until it is done.
  virtual absl::Status CopyIn(Stream stream, void* to, const void* from, uint64_t bytes) = 0;
  virtual absl::Status CopyOut(Stream stream, void* to, const void* from, uint64_t bytes) = 0;
  // On the stream of kernels; the two do not overlap.
  virtual absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) = 0;
  // The same of so many bytes of each row.
  virtual absl::Status CopyRows(const DeviceRows& to, const DeviceRows& from, size_t bytes,
                                size_t rows) = 0;
  // What a launch failed with, since this was asked last. Does not wait.
  virtual absl::Status LaunchStatus() = 0;

  virtual absl::StatusOr<Event> MakeEvent() = 0;
  virtual void FreeEvent(Event event) = 0;
  // The event is what is on the stream by now.
  virtual absl::Status Record(Event event, Stream stream) = 0;
  // What is put on the stream from now on waits for the event; one that was never recorded is past.
  virtual absl::Status WaitFor(Stream stream, Event event) = 0;
  // Waits for the event.
  virtual absl::Status Finish(Event event) = 0;
  // Whether the event is past. Does not wait.
  virtual absl::StatusOr<bool> IsPast(Event event) = 0;

  // What `launch` launches on the stream of kernels, with these arguments, is not run, but becomes
  // a graph.
  virtual absl::StatusOr<Graph> RecordGraph(const std::function<void()>& launch) = 0;
  virtual void FreeGraph(Graph graph) = 0;
  // Runs all that it has, on the stream of kernels.
  virtual absl::Status LaunchGraph(Graph graph) = 0;

  // Any of these may fail: UNAVAILABLE (DEVICE_FAILED) once the device is of no use any more, as
  // Health says then; INTERNAL (DEVICE_CALL_FAILED) where the error is the call's alone.
  // The first failure for good. Does not wait.
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

// What a device made beside memory, and takes back by `kFree`.
template <typename T, void (Device::*kFree)(T*)>
class OfDevice {
 public:
  OfDevice() = default;
  OfDevice(Device* device, T* held) : device_(device), held_(held) {}
  ~OfDevice() { Reset(); }
  OfDevice(OfDevice&& other) noexcept { *this = std::move(other); }
  OfDevice& operator=(OfDevice&& other) noexcept {
    Reset();
    device_ = std::exchange(other.device_, nullptr);
    held_ = std::exchange(other.held_, nullptr);
    return *this;
  }

  T* get() const { return held_; }

 private:
  void Reset() {
    if (held_ != nullptr) {
      (device_->*kFree)(std::exchange(held_, nullptr));
    }
  }
  Device* device_ = nullptr;
  T* held_ = nullptr;
};
using PinnedMemory = OfDevice<uint8_t, &Device::FreePinned>;
using OwnedEvent = OfDevice<void, &Device::FreeEvent>;
using OwnedGraph = OfDevice<void, &Device::FreeGraph>;

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_DEVICE_H_
