// How a stage's weights come to a device: packed by the host, a layer at a time.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_UPLOAD_WEIGHTS_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_UPLOAD_WEIGHTS_H_

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/shard/device_weights.h"
#include "worker/backend/cuda/shard/transfers.h"
#include "worker/backend/stage.h"

namespace strata::cuda {

// As Backend::Load says. The host has one layer's packed weights at a time, with the embedding
// beside those of the first and the head beside those of the last (StagedWeights of
// common/footprint counts it).
absl::StatusOr<DeviceWeights> UploadWeights(const StageSpec& spec, const TensorSource& tensors,
                                            PackedStore* packed, const cpu::Kernels& kernels,
                                            cpu::ThreadPool* pool, const LoadProgressFn& progress,
                                            Device* device, Transfers* transfers);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_UPLOAD_WEIGHTS_H_
