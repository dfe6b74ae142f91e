#include "worker/backend/cuda/device/emulated_device.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace strata::cuda {
namespace {

// What cudaMalloc aligns to.
constexpr size_t kAllocationAlignment = 256;

class EmulatedDevice : public Device {
 public:
  explicit EmulatedDevice(uint64_t memory_bytes) : memory_{memory_bytes, memory_bytes} {}
  ~EmulatedDevice() override {
    for (const auto& [data, bytes] : allocated_) {
      std::free(data);
    }
  }

  std::string name() const override { return "emulated"; }
  Stream stream() const override { return nullptr; }
  absl::StatusOr<DeviceMemory> Memory() override { return memory_; }

  absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) override {
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
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* to, const void* from, uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status LaunchStatus() override { return absl::OkStatus(); }

 private:
  DeviceMemory memory_;
  std::map<uint8_t*, uint64_t> allocated_;
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice(uint64_t memory_bytes) {
  return std::make_unique<EmulatedDevice>(memory_bytes);
}

}  // namespace strata::cuda
