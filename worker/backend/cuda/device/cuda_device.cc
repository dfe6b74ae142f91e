#include "worker/backend/cuda/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/optional_backends.h"
#include "worker/backend/shard.h"

namespace strata::cuda {
namespace {

// There is none to use: the build has the backend, the machine lacks what it needs.
absl::Status Absent(const std::string& why) {
  return Error(absl::StatusCode::kUnimplemented, kDeviceAbsent,
               absl::StrCat("no GPU can be used: ", why))
      .Hint("install NVIDIA's driver (nvidia-smi lists the GPUs), or use --backend cpu");
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(uint32_t index) : index_(index) {}

  static absl::StatusOr<std::shared_ptr<Device>> Open(uint32_t index) {
    auto device = std::make_shared<CudaDevice>(index);
    RETURN_IF_ERROR(device->Open());
    return device;
  }
  ~CudaDevice() override {
    Use();
    for (const cudaStream_t stream : {stream_, copies_}) {
      if (stream != nullptr) {
        (void)cudaStreamDestroy(stream);
      }
    }
  }

  std::string name() const override { return name_; }
  std::string kind() const override { return kind_; }
  uint32_t index() const override { return index_; }
  absl::Status MakeCurrent() override {
    return StatusOf(cudaSetDevice(number()), "making it the thread's");
  }
  Stream stream() const override { return stream_; }
  Stream copies() const override { return copies_; }

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
      return MemoryExhausted(what, bytes, memory.free_bytes, label());
    }
    RETURN_IF_ERROR(StatusOf(error, absl::StrCat("an allocation of ", FormatSize(bytes))));
    return static_cast<uint8_t*>(data);
  }
  void Free(uint8_t* data) override {
    Use();
    (void)cudaFree(data);
  }

  absl::StatusOr<uint8_t*> AllocatePinned(uint64_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // It does not stay.
      return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                   absl::StrCat("copies to and from the GPU need ", FormatSize(bytes),
                                " of the host's memory that stays in place, which the system does "
                                "not give"))
          .Hint("free memory of this machine, and try again");
    }
    RETURN_IF_ERROR(StatusOf(error, "an allocation of the host's memory"));
    return static_cast<uint8_t*>(data);
  }
  void FreePinned(uint8_t* data) override {
    Use();
    (void)cudaFreeHost(data);
  }

  absl::Status CopyIn(Stream stream, void* to, const void* from, uint64_t bytes) override {
    return StatusOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, Of(stream)),
                    "copying to it");
  }
  absl::Status CopyOut(Stream stream, void* to, const void* from, uint64_t bytes) override {
    return StatusOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, Of(stream)),
                    "copying from it");
  }
  absl::Status CopyWithin(void* to, const void* from, uint64_t bytes) override {
    return StatusOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
                    "copying within it");
  }
  absl::Status CopyRows(const DeviceRows& to, const DeviceRows& from, size_t bytes,
                        size_t rows) override {
    return StatusOf(cudaMemcpy2DAsync(to.data, to.stride, from.data, from.stride, bytes, rows,
                                      cudaMemcpyDeviceToDevice, stream_),
                    "copying rows within it");
  }
  absl::Status LaunchStatus() override { return StatusOf(cudaGetLastError(), "a launch"); }

  absl::StatusOr<Event> MakeEvent() override {
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(
        StatusOf(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    return event;
  }
  void FreeEvent(Event event) override {
    Use();
    (void)cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  absl::Status Record(Event event, Stream stream) override {
    return StatusOf(cudaEventRecord(static_cast<cudaEvent_t>(event), Of(stream)),
                    "recording an event");
  }
  absl::Status WaitFor(Stream stream, Event event) override {
    return StatusOf(cudaStreamWaitEvent(Of(stream), static_cast<cudaEvent_t>(event), 0),
                    "waiting for an event");
  }
  absl::Status Finish(Event event) override {
    return StatusOf(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "a step");
  }

  absl::StatusOr<bool> IsPast(Event event) override {
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();  // It is no error, and does not stay.
      return false;
    }
    RETURN_IF_ERROR(StatusOf(error, "a step"));
    return true;
  }

  absl::StatusOr<Graph> RecordGraph(const std::function<void()>& launch) override {
    RETURN_IF_ERROR(StatusOf(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                             "recording launches"));
    launch();
    cudaGraph_t recorded = nullptr;
    RETURN_IF_ERROR(StatusOf(cudaStreamEndCapture(stream_, &recorded), "recording launches"));
    cudaGraphExec_t graph = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
    (void)cudaGraphDestroy(recorded);
    RETURN_IF_ERROR(StatusOf(error, "making a graph of launches"));
    return graph;
  }
  void FreeGraph(Graph graph) override {
    Use();
    (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }
  absl::Status LaunchGraph(Graph graph) override {
    return StatusOf(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_),
                    "launching a graph");
  }

 private:
  absl::Status Open() {
    cudaDeviceProp properties;
    RETURN_IF_ERROR(OpenStatus(cudaSetDevice(number()), "opening"));
    RETURN_IF_ERROR(
        OpenStatus(cudaGetDeviceProperties(&properties, number()), "asking for its properties"));
    name_ = properties.name;
    kind_ = absl::StrCat("sm_", properties.major, properties.minor);
    for (cudaStream_t* const stream : {&stream_, &copies_}) {
      RETURN_IF_ERROR(
          OpenStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream"));
    }
    return absl::OkStatus();
  }

  int number() const { return static_cast<int>(index_); }
  // What the thread calls next is of this device: one that has called nothing yet would open
  // another.
  void Use() const { (void)cudaSetDevice(number()); }

  std::string Text(cudaError_t error, const std::string& what) const {
    return absl::StrCat(what, " failed on ", label(), ": ", cudaGetErrorString(error));
  }
  // Before there is a stream.
  absl::Status OpenStatus(cudaError_t error, const std::string& what) const {
    return error == cudaSuccess
               ? absl::OkStatus()
               : Error(absl::StatusCode::kUnavailable, kDeviceFailed, Text(error, what))
                     .Hint("nvidia-smi says whether the GPU can be used");
  }

  static cudaStream_t Of(Stream stream) { return static_cast<cudaStream_t>(stream); }

  // An error that stays is what every later call answers.
  absl::Status StatusOf(cudaError_t error, const std::string& what) {
    if (error == cudaSuccess) {
      return absl::OkStatus();
    }
    (void)cudaGetLastError();
    // Of the stream of which launches are never recorded: asking that of the other ends a
    // recording.
    const cudaError_t now = cudaStreamQuery(copies_);
    if (now == cudaSuccess || now == cudaErrorNotReady) {
      return Error(absl::StatusCode::kInternal, "DEVICE_CALL_FAILED", Text(error, what));
    }
    return FailForGood(Text(error, what));
  }

  const uint32_t index_;
  std::string name_;
  std::string kind_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t copies_ = nullptr;
};

}  // namespace

absl::StatusOr<uint32_t> CountCudaDevices() {
  int count = 0;
  // The count is left as it was where this fails.
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return Absent(cudaGetErrorString(error));
  }
  if (count <= 0) {
    return Absent("there is none");
  }
  return static_cast<uint32_t>(count);
}

absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice(uint32_t index) {
  return CudaDevice::Open(index);
}

bool CudaDevicesReach(uint32_t one, uint32_t other) {
  int there = 0;
  int back = 0;
  const auto a = static_cast<int>(one);
  const auto b = static_cast<int>(other);
  return cudaDeviceCanAccessPeer(&there, a, b) == cudaSuccess &&
         cudaDeviceCanAccessPeer(&back, b, a) == cudaSuccess && there != 0 && back != 0;
}

}  // namespace strata::cuda
