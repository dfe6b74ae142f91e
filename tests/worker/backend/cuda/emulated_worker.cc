// What makes strata-worker-emulated of a worker: --backend cuda is the CUDA backend's own code and
// kernels on emulated devices, several of which (--devices) a stand-in for NCCL joins.
// STRATA_EMULATED_GPUS=N: there are so many, else one. STRATA_DEVICE_FLIP=N flips a bit of the N-th
// copy to a device (from 0), where weights are uploaded one behind another.
// STRATA_DEVICE_FAILS=FILE: the last device falls off its bus once there is such a file.
// STRATA_NCCL_FAILS=FILE: what NCCL gathers fails while there is such a file. STRATA_NCCL=absent:
// its library is not there; old: it is of an old version.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

#include "common/status.h"
#include "tests/worker/backend/cuda/nccl/stand_in_nccl.h"
#include "worker/backend/cuda/chosen_devices.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/cuda/emulation/streams.h"
#include "worker/backend/cuda/nccl/nccl_library.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;
// Streams are done once the host waits for them: by then all ranks have put theirs.
constexpr uint64_t kOnceAwaited = 1;

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void PutOnEmulated(cuda::Stream stream, std::function<bool()> work) {
  static_cast<cuda_emulation::EmulatedStream*>(stream)->Put([work = std::move(work)] {
    while (!work()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

bool NcclFails() {
  const char* const file = std::getenv("STRATA_NCCL_FAILS");
  return file != nullptr && access(file, F_OK) == 0;
}

absl::StatusOr<cuda::JoinDevices> JoinByStandIn() {
  const std::string_view how = Variable("STRATA_NCCL");
  if (how == "absent") {
    return cuda::OpenNccl("libnccl-of-nobody.so.2").status();
  }
  // For as long as the process.
  static auto* const nccl = new testing::StandInNccl(PutOnEmulated);
  if (how == "old") {
    nccl->set_version(22700);
  }
  cuda::NcclCalls calls = testing::StandInNccl::calls();
  calls.group_end = [] {
    const cuda::NcclResult result = testing::StandInNccl::calls().group_end();
    return NcclFails() ? cuda::NcclResult::kSystemError : result;
  };
  calls.all_gather = [](const void* send, void* receive, size_t count, cuda::NcclDataType type,
                        cuda::NcclComm* comm, cuda::Stream stream) {
    return NcclFails()
               ? cuda::NcclResult::kSystemError
               : testing::StandInNccl::calls().all_gather(send, receive, count, type, comm, stream);
  };
  return cuda::JoinByNccl(calls);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options) {
  if (name != "cuda") {
    return MakeCpuBackend(options.cpu, options.any);
  }
  cuda::DeviceDriver driver;
  const std::string_view count = Variable("STRATA_EMULATED_GPUS");
  driver.count = count.empty() ? 1 : static_cast<uint32_t>(std::atoi(count.data()));
  driver.open = [last = driver.count -
                        1](uint32_t index) -> absl::StatusOr<std::shared_ptr<cuda::Device>> {
    cuda::DeviceFaults faults;
    if (const char* const flip = std::getenv("STRATA_DEVICE_FLIP"); flip != nullptr) {
      faults.flipped_copy = std::strtoull(flip, nullptr, 10);
    }
    const char* const file = std::getenv("STRATA_DEVICE_FAILS");
    if (file != nullptr && index == last) {
      faults.fails = [file] { return access(file, F_OK) == 0; };
    }
    return cuda::MakeEmulatedDevice(kDeviceBytes, std::move(faults),
                                    {.stream_order = last == 0 ? 0 : kOnceAwaited, .index = index});
  };
  driver.join = JoinByStandIn;
  return cuda::MakeBackendOnChosen(driver, options.devices, options.any);
}

}  // namespace strata
