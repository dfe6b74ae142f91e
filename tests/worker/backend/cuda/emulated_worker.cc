// What makes strata-worker-emulated of a worker: --backend cuda is the CUDA backend's own code and
// kernels on an emulated device. STRATA_DEVICE_FLIP=N flips a bit of the N-th copy to the device
// (from 0), where weights are uploaded one behind another.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;
// Of the second byte, which in all formats of floats has a part of an exponent, and in all others a
// weight.
constexpr size_t kFlippedByte = 1;
constexpr uint8_t kFlippedBit = 0x20;

class FlippingDevice : public cuda::Device {
 public:
  FlippingDevice(std::unique_ptr<cuda::Device> device, uint64_t copy)
      : device_(std::move(device)), copy_(copy) {}

  std::string name() const override { return device_->name(); }
  cuda::Stream stream() const override { return device_->stream(); }
  absl::StatusOr<cuda::DeviceMemory> Memory() override { return device_->Memory(); }
  absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) override {
    return device_->Allocate(bytes, what);
  }
  void Free(uint8_t* data) override { device_->Free(data); }
  absl::Status CopyIn(void* to, const void* from, uint64_t bytes) override {
    if (copies_++ != copy_ || bytes <= kFlippedByte) {
      return device_->CopyIn(to, from, bytes);
    }
    const auto* const begin = static_cast<const uint8_t*>(from);
    std::vector<uint8_t> flipped(begin, begin + bytes);
    flipped[kFlippedByte] ^= kFlippedBit;
    return device_->CopyIn(to, flipped.data(), bytes);
  }
  absl::Status CopyOut(void* to, const void* from, uint64_t bytes) override {
    return device_->CopyOut(to, from, bytes);
  }
  absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) override {
    return device_->CopyWithin(to, from, bytes);
  }
  absl::Status LaunchStatus() override { return device_->LaunchStatus(); }

 private:
  const std::unique_ptr<cuda::Device> device_;
  const uint64_t copy_;
  uint64_t copies_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options) {
  if (name != "cuda") {
    return MakeCpuBackend(options.cpu, options.any);
  }
  std::unique_ptr<cuda::Device> device = cuda::MakeEmulatedDevice(kDeviceBytes);
  if (const char* const flip = std::getenv("STRATA_DEVICE_FLIP"); flip != nullptr) {
    device = std::make_unique<FlippingDevice>(std::move(device), std::strtoull(flip, nullptr, 10));
  }
  return cuda::MakeBackendOn(std::move(device), options.any);
}

}  // namespace strata
