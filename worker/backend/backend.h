// The one seam to devices: a backend loads a stage's weights (tensor_source.h, packed_store.h) into
// a shard that computes its steps (shard.h). How it keeps weights and KV (panels, pages in memory,
// device buffers, lazy arrays) is its own affair; what is shared is the page *numbers* of the
// worker's KvPool and the LayerSpec it is given. docs/ARCHITECTURE.md, "Backends", says how CUDA
// and MLX fit it.
#ifndef STRATA_WORKER_BACKEND_BACKEND_H_
#define STRATA_WORKER_BACKEND_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/stage_devices.h"
#include "common/status.h"
#include "worker/backend/packed_store.h"
#include "worker/backend/rank_shard.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/backend/tensor_source.h"

namespace strata {

// Called during Load, from the loading thread, with bytes done of total.
using LoadProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// What a backend measures about its device, for the planner.
struct DeviceSpeed {
  double read_bytes_per_s = 0;
  double flops_per_s = 0;  // float32 fma, 2 an fma.
  // Of several devices, the first number of each; of all above it is that at which stages are read.
  std::vector<double> device_read_bytes_per_s = {};
};

// One of several devices over which a backend divides each of its stages.
struct DividingDevice {
  uint32_t index = 0;  // As the process counts its devices.
  std::string name;    // For people.
  StageDevice of_stage;
};

// What a device is, for people.
struct DeviceFacts {
  // What of its kind computes, as an instruction set: "avx512". "": all are alike.
  std::string kind;
  std::string name;      // "NVIDIA H200", or a processor's; "": not known.
  uint32_t threads = 0;  // Of the host, that compute.
  std::string placed;    // Where these are; "": there is nothing to say.
  // Of a device with memory of its own, what was free of it when the backend was made; 0: stages
  // are in the host's.
  uint64_t memory_bytes = 0;
  // The most that such stages may take of the host's memory for the device to hold them; 0: all.
  uint64_t shared_bytes = 0;
  // By rank, 2 to kMostRanks; empty: there is one device. memory_bytes is AllMemory of them then,
  // and what shards and ledgers count is OfAllMemory.
  std::vector<DividingDevice> devices = {};
};

// Of memory that a library allocates: in arrays, and kept to be used again.
struct AllocatedMemory {
  uint64_t active_bytes = 0;
  uint64_t kept_bytes = 0;
};

// A kind of device. Any thread; shards of one backend may compute at the same time only if they
// share no threads: the worker runs one step at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;      // "cpu"
  virtual std::string numerics() const = 0;  // "cpu-2": name and numerics version.
  virtual DeviceFacts facts() const = 0;

  // Why it could not compute this, or ok; does not look at weights' values.
  virtual absl::Status Supports(const StageSpec& spec) const = 0;
  // Reads, checks and packs the weights, and allocates KV and scratch: nothing is allocated per
  // step after it. What `packed` (nullptr: nothing is kept) has is read from it, and what it lacks
  // is given to it; only tensors whose packed form it lacks are prepared. RESOURCE_EXHAUSTED when
  // memory is short.
  virtual absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec,
                                                      const TensorSource& weights,
                                                      PackedStore* packed,
                                                      const LoadProgressFn& progress) = 0;
  // The same of one rank, whose others are elsewhere. UNIMPLEMENTED (BACKEND_UNSUPPORTED) where the
  // backend has no ranks.
  virtual absl::StatusOr<std::unique_ptr<RankShard>> LoadRank(const StageSpec& /*spec*/,
                                                              const RankPlace& /*place*/,
                                                              const TensorSource& /*weights*/,
                                                              PackedStore* /*packed*/,
                                                              const LoadProgressFn& /*progress*/) {
    return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
                 "ranks of several workers are not supported by the " + name() + " backend yet");
  }
  // Takes about `seconds`, and `bytes` of memory for that long, less where it is short: what the
  // caches do not hold. Both speeds are above 0.
  virtual absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) = 0;

  // What an allocator of its own has at this moment; none where it has no such. Does not wait.
  virtual AllocatedMemory Allocated() const { return {}; }

  // UNAVAILABLE (kDeviceFailed) once the device has failed for good: nothing that is loaded
  // computes any more, and nothing can be loaded. Does not wait.
  virtual absl::Status Health() const { return absl::OkStatus(); }
};

// What a backend of any kind is opened with; what only one kind has is in its folder.
struct BackendOptions {
  // Get lines for those who look closely, and of what makes it slow. Any thread; may be null.
  std::function<void(const std::string&)> debug_log = nullptr;
  std::function<void(const std::string&)> warning_log = nullptr;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_BACKEND_H_
