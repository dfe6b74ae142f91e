// How a stage's weights come to its devices: packed by the host, a layer at a time.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_UPLOAD_WEIGHTS_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_UPLOAD_WEIGHTS_H_

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/rank_outputs.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/shard/device_weights.h"
#include "worker/backend/cuda/shard/transfers.h"
#include "worker/backend/stage.h"

namespace strata::cuda {

// Where one rank's weights go.
struct RankUpload {
  Device* device = nullptr;
  Transfers* transfers = nullptr;
};

// As Backend::Load says; of each rank its own of `outputs` (SplitOutputs). The host has one layer's
// packed weights at a time, of all ranks, with the embedding beside those of the first and the head
// beside those of the last (StagedWeights of common/footprint counts it).
absl::StatusOr<std::vector<DeviceWeights>> UploadWeights(
    const StageSpec& spec, const std::vector<RankOutputs>& outputs,
    std::span<const RankUpload> ranks, const TensorSource& tensors, PackedStore* packed,
    const cpu::Kernels& kernels, cpu::ThreadPool* pool, const LoadProgressFn& progress);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_UPLOAD_WEIGHTS_H_
