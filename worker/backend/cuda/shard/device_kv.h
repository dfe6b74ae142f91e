// KV memory of a stage on a device: for every layer all pages of its group, laid out as the CPU's
// (KvLayout), in one allocation.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_KV_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_KV_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/stage.h"

namespace strata::cuda {

class DeviceKv {
 public:
  // Gives up what it has first. After an error there is no page.
  absl::Status Allocate(Device* device, const StageSpec& spec);
  // `layer` counts from the stage's first.
  KvPages pages(uint32_t layer) const;
  // Of all layers of the group.
  absl::Status CopyPage(Device* device, uint32_t group, PageId from, PageId to) const;
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  struct Layer {
    uint32_t group = 0;
    uint64_t first_byte = 0;
    uint64_t page_count = 0;
    size_t head_bytes = 0;
    size_t value_bytes = 0;
    uint32_t heads = 0;
  };

  bool f16_ = true;
  std::vector<Layer> layers_;
  DeviceBuffer memory_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_KV_H_
