#include "worker/backend/cuda/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/shard.h"

namespace strata::cuda {
namespace {

// The worker's device; CUDA_VISIBLE_DEVICES says which of the machine's it is.
constexpr int kDevice = 0;

std::string Text(cudaError_t error, const std::string& what) {
  return absl::StrCat(what, " failed on the device: ", cudaGetErrorString(error));
}

// Before there is a stream.
absl::Status OpenStatus(cudaError_t error, const std::string& what) {
  return error == cudaSuccess
             ? absl::OkStatus()
             : Error(absl::StatusCode::kUnavailable, kDeviceFailed, Text(error, what))
                   .Hint("nvidia-smi says whether the GPU can be used");
}

// There is none to use: the build has the backend, the machine lacks what it needs.
absl::Status Absent(const std::string& why) {
  return Error(absl::StatusCode::kUnimplemented, "BACKEND_ABSENT",
               absl::StrCat("no GPU can be used: ", why))
      .Hint("install NVIDIA's driver (nvidia-smi lists the GPUs), or use --backend cpu");
}

class CudaDevice : public Device {
 public:
  static absl::StatusOr<std::shared_ptr<Device>> Open() {
    int count = 0;
    // The count is left as it was where this fails.
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
      return Absent(cudaGetErrorString(error));
    }
    if (count == 0) {
      return Absent("there is none");
    }
    auto device = std::make_shared<CudaDevice>();
    cudaDeviceProp properties;
    RETURN_IF_ERROR(OpenStatus(cudaSetDevice(kDevice), "opening"));
    RETURN_IF_ERROR(
        OpenStatus(cudaGetDeviceProperties(&properties, kDevice), "asking for its properties"));
    device->name_ = properties.name;
    device->kind_ = absl::StrCat("sm_", properties.major, properties.minor);
    RETURN_IF_ERROR(OpenStatus(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking),
                               "making a stream"));
    return device;
  }
  ~CudaDevice() override {
    if (stream_ != nullptr) {
      (void)cudaStreamDestroy(stream_);
    }
  }

  std::string name() const override { return name_; }
  std::string kind() const override { return kind_; }
  Stream stream() const override { return stream_; }

  absl::StatusOr<DeviceMemory> Memory() override {
    size_t free = 0;
    size_t total = 0;
    RETURN_IF_ERROR(StatusOf(cudaMemGetInfo(&free, &total), "asking for its memory"));
    return DeviceMemory{free, total};
  }

  absl::StatusOr<uint8_t*> Allocate(uint64_t bytes, const std::string& what) override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // It does not stay.
      ASSIGN_OR_RETURN(const DeviceMemory memory, Memory());
      return MemoryExhausted(what, bytes, memory.free_bytes);
    }
    RETURN_IF_ERROR(StatusOf(error, absl::StrCat("an allocation of ", FormatSize(bytes))));
    return static_cast<uint8_t*>(data);
  }
  void Free(uint8_t* data) override { (void)cudaFree(data); }

  absl::Status CopyIn(void* to, const void* from, uint64_t bytes) override {
    // Memory of the host that is not pinned is staged before this returns.
    return StatusOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_),
                    "copying to it");
  }
  absl::Status CopyOut(void* to, const void* from, uint64_t bytes) override {
    RETURN_IF_ERROR(StatusOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                             "copying from it"));
    return StatusOf(cudaStreamSynchronize(stream_), "a step");
  }
  absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) override {
    return StatusOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
                    "copying within it");
  }
  absl::Status LaunchStatus() override { return StatusOf(cudaGetLastError(), "a launch"); }

 private:
  // An error that stays is what every later call answers.
  absl::Status StatusOf(cudaError_t error, const std::string& what) {
    if (error == cudaSuccess) {
      return absl::OkStatus();
    }
    (void)cudaGetLastError();
    const cudaError_t now = cudaStreamQuery(stream_);
    if (now == cudaSuccess || now == cudaErrorNotReady) {
      return Error(absl::StatusCode::kInternal, "DEVICE_CALL_FAILED", Text(error, what));
    }
    return FailForGood(Text(error, what));
  }

  std::string name_;
  std::string kind_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace
absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice() { return CudaDevice::Open(); }

}  // namespace strata::cuda
