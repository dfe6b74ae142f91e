// From a Load of the coordinator to a shard that computes: checks what was asked, brings the
// weights, and has the backend pack them.
#ifndef STRATA_WORKER_SERVICE_STAGE_LOADER_H_
#define STRATA_WORKER_SERVICE_STAGE_LOADER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "strata/v1/membership.pb.h"
#include "worker/backend/backend.h"
#include "worker/service/device_needs.h"
#include "worker/weights/blob_fetcher.h"
#include "worker/weights/kept_layers.h"
#include "worker/weights/mapped_weights.h"

namespace strata {

// What a Load means, checked.
struct StageRequest {
  StageSpec spec;  // Without rotary.
  std::vector<BlobTensor> tensors;
  std::vector<StageTensor> needs;  // All of them, by what they are for.
  Blob rotary;
  std::optional<RankPlace> place;  // Of a stage over several workers; what follows is of the rank.
  uint64_t weight_bytes = 0;       // As packed.
  uint64_t kv_bytes = 0;
  // Of the host's memory, beside a device's own: while the stage is loaded, and more while its
  // weights are on their way. 0: it has none.
  uint64_t host_bytes = 0;
  uint64_t staged_bytes = 0;
  DeviceNeeds on_devices;  // Where the worker divides its stages over several.
};

// Looks at everything that a Load says, before a byte is fetched. INVALID_ARGUMENT (BAD_LOAD, or
// as MakeBlobTensor and ParseModelConfig) for what contradicts itself, UNIMPLEMENTED (by name) for
// what is not there yet, FAILED_PRECONDITION (NUMERICS_CLASS) when this worker would compute
// another class than `load` names.
absl::StatusOr<StageRequest> CheckLoad(const v1::Load& load, const Backend& backend);

// How far a load is: written by its threads, read by whoever reports it.
struct LoadCounters {
  FetchProgress fetch;
  std::atomic<bool> packing{false};
  std::atomic<uint64_t> packed_bytes{0};
  std::atomic<uint64_t> packing_bytes{0};  // In all.
  std::atomic<uint64_t> kept_bytes{0};     // Were packed before, and read.
  // Packed files that were not there before. For whoever waits for the load, whatever its end.
  std::vector<Blob> packed_made;
};

// What a load leaves.
struct LoadedStage {
  StageSpec spec;  // Without rotary, which the shard has copied.
  std::unique_ptr<Shard> shard;
  std::unique_ptr<RankShard> rank;  // In its place, of a stage over several workers.
  // Keeps cached, while it is loaded, what its next load wants: packed weights, and the blobs of
  // what is not kept packed.
  std::unique_ptr<CachePin> pin;
  absl::Status packed_status;  // Why not all packed weights were kept; ok: they were, or need not.
};

// What a load uses; all outlives it.
struct LoadContext {
  Backend* backend = nullptr;
  WeightCache* cache = nullptr;
  BlobFetcher* fetcher = nullptr;
  BlobClient* client = nullptr;
  bool keep_packed = true;       // In the cache, for the next load.
  KeptLayers* layers = nullptr;  // Told what a load has kept, where packed weights are kept.
  // Sets `bytes` aside in place of what was before, unless more than is free of --memory. Returns
  // what is free for this stage.
  std::function<uint64_t(uint64_t bytes)> reserve_memory;
  // The same of the host's memory and --host-memory, where the device has memory of its own; else
  // null.
  std::function<uint64_t(uint64_t bytes)> reserve_host_memory;
  std::function<void(const std::string&)> log;  // A line that people should know.
};

// What the cache calls the layer of a Load with one layer alone.
std::string KeyOfLayer(const v1::Load& load);

// Reads what was kept packed, fetches and packs the rest. Errors: those of CheckLoad and
// BlobFetcher, RESOURCE_EXHAUSTED (MEMORY_LIMIT), CANCELLED, or the backend's.
absl::StatusOr<LoadedStage> LoadStage(const v1::Load& load, const LoadContext& context,
                                      LoadCounters* counters, Cancellation* cancel);

// What LoadStage does, for a shard whose own Load was SameButForKv: it keeps its weights, and loses
// all KV. Errors: those of CheckLoad, RESOURCE_EXHAUSTED; the shard has no pages after one, and may
// be resized again.
absl::StatusOr<StageSpec> ResizeStage(const v1::Load& load, const LoadContext& context,
                                      Shard* shard);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_STAGE_LOADER_H_
