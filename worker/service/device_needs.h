// What a stage takes of each of several devices over which a worker divides it.
#ifndef STRATA_WORKER_SERVICE_DEVICE_NEEDS_H_
#define STRATA_WORKER_SERVICE_DEVICE_NEEDS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/footprint/footprint.h"
#include "worker/backend/backend.h"
#include "worker/backend/stage.h"
#include "worker/weights/mapped_weights.h"

namespace strata {

struct DeviceNeeds {
  std::vector<DividingDevice> devices;  // By rank; empty: a stage has one device.
  std::vector<uint64_t> weight_bytes;   // Of each, as packed.
  std::vector<uint64_t> kv_bytes;       // Likewise.
  uint64_t staged_bytes = 0;  // Of the host's memory, the most while weights are on their way.

  // Of all their memory, as ledgers count it (OfAllMemory): weights, KV, and what gathers take.
  uint64_t CountedBytes() const;
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT) that names the device which has least room, where `free` of
  // all their memory are free for the stage. `layers`: "layers 0-7".
  absl::Status NoRoom(const std::string& layers, uint64_t free) const;
};

// `of_one` is the footprint of a stage on one device; `needs` are the stage's tensors, each once,
// and find(name) one that is there.
DeviceNeeds NeedsOfDevices(std::vector<DividingDevice> devices, const Footprint& of_one,
                           const StageSpec& spec, std::span<const StageTensor> needs,
                           const std::function<const BlobTensor&(const std::string& name)>& find);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_DEVICE_NEEDS_H_
