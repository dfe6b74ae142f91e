#include "worker/backend/cuda/device/emulated_device.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "common/status.h"

namespace strata::cuda {
namespace {

// What cudaMalloc aligns to.
constexpr size_t kAllocationAlignment = 256;
// Of the second byte, which in all formats of floats has a part of an exponent, and in all others a
// weight.
constexpr size_t kFlippedByte = 1;
constexpr uint8_t kFlippedBit = 0x20;

class EmulatedDevice : public Device {
 public:
  EmulatedDevice(uint64_t memory_bytes, DeviceFaults faults)
      : faults_(std::move(faults)), memory_{memory_bytes, memory_bytes} {}
  ~EmulatedDevice() override {
    for (const auto& [data, bytes] : allocated_) {
      std::free(data);
    }
  }

  std::string name() const override { return "emulated GPU"; }
  std::string kind() const override { return "emulated"; }
  Stream stream() const override { return nullptr; }
  absl::StatusOr<DeviceMemory> Memory() override {
    RETURN_IF_ERROR(Works());
    return memory_;
  }

  absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) override {
    RETURN_IF_ERROR(Works());
    if (bytes > memory_.free_bytes) {
      return MemoryExhausted(what, bytes, memory_.free_bytes);
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
    const auto at = allocated_.find(data);
    memory_.free_bytes += at->second;
    allocated_.erase(at);
    std::free(data);
  }

  absl::Status CopyIn(void* to, const void* from, uint64_t bytes) override {
    RETURN_IF_ERROR(Copy(to, from, bytes));
    if (faults_.flipped_copy == copies_in_++ && bytes > kFlippedByte) {
      static_cast<uint8_t*>(to)[kFlippedByte] ^= kFlippedBit;
    }
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* to, const void* from, uint64_t bytes) override {
    return Copy(to, from, bytes);
  }
  absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) override {
    return Copy(to, from, bytes);
  }
  absl::Status LaunchStatus() override { return Works(); }

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
  absl::Status Copy(void* to, const void* from, uint64_t bytes) {
    RETURN_IF_ERROR(Works());
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

  const DeviceFaults faults_;
  DeviceMemory memory_;
  std::map<uint8_t*, uint64_t> allocated_;
  uint64_t copies_in_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice(uint64_t memory_bytes, DeviceFaults faults) {
  return std::make_unique<EmulatedDevice>(memory_bytes, std::move(faults));
}

}  // namespace strata::cuda
