// A device on the host whose stream is not done before its time: what is put there may wait for
// others, and the host finds out by looking. Copies and events only; no kernel runs here.
#ifndef STRATA_TESTS_WORKER_BACKEND_CUDA_NCCL_HOST_DEVICE_H_
#define STRATA_TESTS_WORKER_BACKEND_CUDA_NCCL_HOST_DEVICE_H_

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "worker/backend/cuda/device/device.h"

namespace strata::testing {

// What is to be done, one behind another; of one thread.
class HostStream {
 public:
  // work() says whether it is done; it is asked again until it is.
  void Put(std::function<bool()> work) { work_.push_back(std::move(work)); }
  void DoWhatCan() {
    while (!work_.empty() && work_.front()()) {
      work_.pop_front();
    }
  }

 private:
  std::deque<std::function<bool()>> work_;
};

class HostDevice : public cuda::Device {
 public:
  // From now on it is off its bus.
  void Lose() { lost_.store(true); }
  // How often the host has looked for an event.
  uint64_t looks() const { return looks_.load(); }

  std::string name() const override { return "host"; }
  std::string kind() const override { return "host"; }
  uint32_t index() const override { return 0; }
  absl::Status MakeCurrent() override { return Works(); }
  cuda::Stream stream() const override { return &stream_; }
  cuda::Stream copies() const override { return &stream_; }
  absl::StatusOr<cuda::DeviceMemory> Memory() override {
    if (absl::Status status = Works(); !status.ok()) {
      return status;
    }
    return cuda::DeviceMemory{};
  }
  absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& /*what*/) override {
    if (absl::Status status = Works(); !status.ok()) {
      return status;
    }
    auto* const data = new uint8_t[bytes];
    std::memset(data, 0xff, bytes);
    return data;
  }
  void Free(uint8_t* data) override { delete[] data; }
  absl::Status CopyRows(const cuda::DeviceRows& to, const cuda::DeviceRows& from, size_t bytes,
                        size_t rows) override {
    stream_.Put([to, from, bytes, rows] {
      for (size_t row = 0; row < rows; ++row) {
        std::memcpy(to.data + row * to.stride, from.data + row * from.stride, bytes);
      }
      return true;
    });
    return Works();
  }
  absl::Status LaunchStatus() override { return Works(); }

  absl::StatusOr<cuda::Event> MakeEvent() override {
    if (absl::Status status = Works(); !status.ok()) {
      return status;
    }
    return new HostEvent;
  }
  void FreeEvent(cuda::Event event) override { delete static_cast<HostEvent*>(event); }
  absl::Status Record(cuda::Event event, cuda::Stream /*stream*/) override {
    auto* const host = static_cast<HostEvent*>(event);
    const auto past = std::make_shared<bool>(false);
    host->past = past;
    stream_.Put([past] { return *past = true; });
    return Works();
  }
  absl::StatusOr<bool> IsPast(cuda::Event event) override {
    if (absl::Status status = Works(); !status.ok()) {
      return status;
    }
    ++looks_;
    stream_.DoWhatCan();
    return *static_cast<HostEvent*>(event)->past;
  }

  // Not used by what is tested here.
  absl::StatusOr<uint8_t*> AllocatePinned(uint64_t /*bytes*/) override { return Unused(); }
  void FreePinned(uint8_t* /*data*/) override { (void)Unused(); }
  absl::Status CopyIn(cuda::Stream /*stream*/, void* /*to*/, const void* /*from*/,
                      uint64_t /*bytes*/) override {
    return Unused();
  }
  absl::Status CopyOut(cuda::Stream /*stream*/, void* /*to*/, const void* /*from*/,
                       uint64_t /*bytes*/) override {
    return Unused();
  }
  absl::Status CopyWithin(void* /*to*/, const void* /*from*/, uint64_t /*bytes*/) override {
    return Unused();
  }
  absl::Status WaitFor(cuda::Stream /*stream*/, cuda::Event /*event*/) override { return Unused(); }
  absl::Status Finish(cuda::Event /*event*/) override { return Unused(); }
  absl::StatusOr<cuda::Graph> RecordGraph(const std::function<void()>& /*launch*/) override {
    return Unused();
  }
  void FreeGraph(cuda::Graph /*graph*/) override { (void)Unused(); }
  absl::Status LaunchGraph(cuda::Graph /*graph*/) override { return Unused(); }

 private:
  struct HostEvent {
    std::shared_ptr<bool> past = std::make_shared<bool>(true);
  };

  static absl::Status Unused() {
    STRATA_CHECK(false);
    return absl::OkStatus();
  }
  absl::Status Works() {
    return lost_.load() ? FailForGood("the device fell off its bus") : absl::OkStatus();
  }

  std::atomic<bool> lost_{false};
  std::atomic<uint64_t> looks_{0};
  mutable HostStream stream_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_CUDA_NCCL_HOST_DEVICE_H_
