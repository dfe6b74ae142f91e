#include "worker/backend/cuda/device/emulated_device.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/emulation/streams.h"

namespace strata::cuda {
namespace {

// What cudaMalloc aligns to.
constexpr size_t kAllocationAlignment = 256;
// Of the second byte, which in all formats of floats has a part of an exponent, and in all others a
// weight.
constexpr size_t kFlippedByte = 1;
constexpr uint8_t kFlippedBit = 0x20;

using cuda_emulation::EmulatedEvent;
using cuda_emulation::EmulatedStream;
using cuda_emulation::RecordedWork;

class EmulatedDevice : public Device {
 public:
  EmulatedDevice(uint64_t memory_bytes, DeviceFaults faults, EmulationOptions options)
      : faults_(std::move(faults)),
        index_(options.index),
        counts_(options.graphs),
        streams_(options.stream_order),
        stream_(streams_.Make()),
        copies_(streams_.Make()),
        memory_{memory_bytes, memory_bytes} {}
  ~EmulatedDevice() override {
    streams_.FinishAll();
    for (const auto& [data, bytes] : allocated_) {
      std::free(data);
    }
  }

  std::string name() const override { return "emulated GPU"; }
  std::string kind() const override { return "emulated"; }
  uint32_t index() const override { return index_; }
  absl::Status MakeCurrent() override { return Health(); }
  Stream stream() const override { return stream_; }
  Stream copies() const override { return copies_; }
  absl::StatusOr<DeviceMemory> Memory() override {
    RETURN_IF_ERROR(Works());
    MutexLock lock(&mutex_);
    return memory_;
  }

  absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) override {
    RETURN_IF_ERROR(Works());
    MutexLock lock(&mutex_);
    if (bytes > memory_.free_bytes) {
      return MemoryExhausted(what, bytes, memory_.free_bytes, label());
    }
    const size_t rounded =
        (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
    auto* const data = static_cast<uint8_t*>(std::aligned_alloc(kAllocationAlignment, rounded));
    // As a GPU leaves it: anything. Numbers that are none show where they are read.
    std::memset(data, 0xff, rounded);
    allocated_[data] = bytes;
    memory_.free_bytes -= bytes;
    return data;
  }
  void Free(uint8_t* data) override {
    streams_.FinishAll();  // As CUDA waits.
    MutexLock lock(&mutex_);
    const auto at = allocated_.find(data);
    memory_.free_bytes += at->second;
    allocated_.erase(at);
    std::free(data);
  }
  absl::StatusOr<uint8_t*> AllocatePinned(uint64_t bytes) override {
    RETURN_IF_ERROR(Works());
    auto* const data = static_cast<uint8_t*>(std::malloc(bytes));
    std::memset(data, 0xff, bytes);
    MutexLock lock(&mutex_);
    pinned_[data] = bytes;
    return data;
  }
  void FreePinned(uint8_t* data) override {
    streams_.FinishAll();
    MutexLock lock(&mutex_);
    pinned_.erase(data);
    std::free(data);
  }

  absl::Status CopyIn(Stream stream, void* to, const void* from, uint64_t bytes) override {
    CheckPinned(from, bytes);
    const bool flips = faults_.flipped_copy == copies_in_++ && bytes > kFlippedByte;
    return Put(stream, [to, from, bytes, flips] {
      std::memcpy(to, from, bytes);
      if (flips) {
        static_cast<uint8_t*>(to)[kFlippedByte] ^= kFlippedBit;
      }
    });
  }
  absl::Status CopyOut(Stream stream, void* to, const void* from, uint64_t bytes) override {
    CheckPinned(to, bytes);
    return Put(stream, [to, from, bytes] { std::memcpy(to, from, bytes); });
  }
  absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) override {
    return Put(stream_, [to, from, bytes] { std::memcpy(to, from, bytes); });
  }
  absl::Status CopyRows(const DeviceRows& to, const DeviceRows& from, size_t bytes,
                        size_t rows) override {
    return Put(stream_, [to, from, bytes, rows] {
      for (size_t row = 0; row < rows; ++row) {
        std::memcpy(to.data + row * to.stride, from.data + row * from.stride, bytes);
      }
    });
  }
  absl::Status LaunchStatus() override { return Works(); }

  absl::StatusOr<Event> MakeEvent() override {
    RETURN_IF_ERROR(Works());
    MutexLock lock(&mutex_);
    return events_.insert(std::make_unique<EmulatedEvent>()).first->get();
  }
  void FreeEvent(Event event) override {
    streams_.FinishAll();
    MutexLock lock(&mutex_);
    std::erase_if(events_, [event](const auto& one) { return one.get() == event; });
  }
  absl::Status Record(Event event, Stream stream) override {
    RETURN_IF_ERROR(Works());
    static_cast<EmulatedStream*>(stream)->Record(static_cast<EmulatedEvent*>(event));
    return absl::OkStatus();
  }
  absl::Status WaitFor(Stream stream, Event event) override {
    RETURN_IF_ERROR(Works());
    static_cast<EmulatedStream*>(stream)->WaitFor(*static_cast<EmulatedEvent*>(event));
    return absl::OkStatus();
  }
  absl::Status Finish(Event event) override {
    RETURN_IF_ERROR(Works());
    streams_.Finish(*static_cast<EmulatedEvent*>(event));
    return absl::OkStatus();
  }

  // Who looks finds it done: nothing is done here beside the host.
  absl::StatusOr<bool> IsPast(Event event) override {
    RETURN_IF_ERROR(Finish(event));
    return true;
  }

  absl::StatusOr<Graph> RecordGraph(const std::function<void()>& launch) override {
    RETURN_IF_ERROR(Works());
    stream_->BeginRecording();
    launch();
    if (counts_ != nullptr) {
      ++counts_->recorded;
    }
    return new RecordedWork(stream_->EndRecording());
  }
  void FreeGraph(Graph graph) override {
    streams_.FinishAll();
    delete static_cast<RecordedWork*>(graph);
  }
  absl::Status LaunchGraph(Graph graph) override {
    if (counts_ != nullptr) {
      ++counts_->launched;
    }
    return Put(stream_, [work = static_cast<const RecordedWork*>(graph)] {
      for (const std::function<void()>& one : *work) {
        one();
      }
    });
  }

 private:
  absl::Status Works() {
    RETURN_IF_ERROR(Health());
    if (faults_.fails && faults_.fails()) {
      return FailForGood("the emulated device fell off its bus");
    }
    if (faults_.fails_once && faults_.fails_once()) {
      return Error(absl::StatusCode::kInternal, "DEVICE_CALL_FAILED",
                   "a call of the emulated device failed");
    }
    return absl::OkStatus();
  }
  absl::Status Put(Stream stream, std::function<void()> work) {
    RETURN_IF_ERROR(Works());
    static_cast<EmulatedStream*>(stream)->Put(std::move(work));
    return absl::OkStatus();
  }
  // A copy of other memory of the host would not be done while the host goes on.
  void CheckPinned(const void* data, uint64_t bytes) const {
    MutexLock lock(&mutex_);
    const auto* const first = static_cast<const uint8_t*>(data);
    auto at = pinned_.upper_bound(const_cast<uint8_t*>(first));
    STRATA_CHECK(at != pinned_.begin());
    --at;
    STRATA_CHECK(first + bytes <= at->first + at->second);
  }

  const DeviceFaults faults_;
  const uint32_t index_;
  GraphCounts* const counts_;
  cuda_emulation::Streams streams_;
  EmulatedStream* const stream_;
  EmulatedStream* const copies_;
  std::atomic<uint64_t> copies_in_ = 0;
  mutable Mutex mutex_;
  DeviceMemory memory_ STRATA_GUARDED_BY(mutex_);
  std::map<uint8_t*, uint64_t> allocated_ STRATA_GUARDED_BY(mutex_);
  std::map<uint8_t*, uint64_t> pinned_ STRATA_GUARDED_BY(mutex_);
  std::set<std::unique_ptr<EmulatedEvent>> events_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice(uint64_t memory_bytes, DeviceFaults faults,
                                           EmulationOptions options) {
  return std::make_unique<EmulatedDevice>(memory_bytes, std::move(faults), options);
}

}  // namespace strata::cuda
