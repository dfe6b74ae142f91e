// A loaded stage on a device: each named step of a layer is some launches on its stream.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_CUDA_SHARD_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_CUDA_SHARD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/shard/batch_on_device.h"
#include "worker/backend/cuda/shard/device_kv.h"
#include "worker/backend/cuda/shard/device_scratch.h"
#include "worker/backend/cuda/shard/device_weights.h"
#include "worker/backend/cuda/shard/residual_branch.h"
#include "worker/backend/cuda/shard/row_products.h"
#include "worker/backend/cuda/shard/step_launches.h"
#include "worker/backend/cuda/shard/transfers.h"
#include "worker/backend/shard.h"
#include "worker/backend/shard_calls.h"

namespace strata::cuda {

// Launches return before their work is done; the Read...s wait.
class CudaShard : public Shard {
 public:
  // `weights` are all of the stage's, on `device`, to which `transfers` copies. `spec` was found
  // supported.
  static absl::StatusOr<std::unique_ptr<CudaShard>> Create(const StageSpec& spec,
                                                           DeviceWeights weights,
                                                           std::unique_ptr<Transfers> transfers,
                                                           std::shared_ptr<Device> device);

  absl::Status Begin(const Batch& batch) override;
  absl::Status Embed() override;
  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override;
  absl::Status SetResidual(std::span<const float> values) override;
  absl::Status Attention(uint32_t layer) override;
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override;
  absl::Status Mlp(uint32_t layer) override;
  absl::Status ReadResidual(std::span<float> out) override;
  absl::Status Head(std::span<const uint32_t> rows) override;
  absl::Status ReadLogits(std::span<float> out) override;
  bool FindsLargest() const override { return true; }
  absl::Status ReadLargest(std::span<RowLargest> out) override;
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override;
  absl::Status ResizeKv(std::span<const uint64_t> pages) override;
  uint64_t MemoryBytes() const override;
  uint64_t StepReadBytes() const override { return weights_.step_read_bytes(); }

 private:
  CudaShard(const StageSpec& spec, DeviceWeights weights, std::unique_ptr<Transfers> transfers,
            std::shared_ptr<Device> device);

  // What a call launches, on rows that are there.
  void Launch(const StepCall& call);
  // Launches what was put off.
  absl::Status Flush();
  void LaunchEmbedding();
  void LaunchAttention(uint32_t layer);
  void LaunchMlp(uint32_t layer);
  void LaunchHead();

  // Attention's parts. Without `queries` only keys and values are wanted.
  void AppendRows(uint32_t layer, bool queries);
  void AppendLatents(uint32_t layer);
  absl::Status KeepRows(std::span<const uint32_t> rows);
  void FinishAttention(uint32_t layer);
  void RotateHeads(uint32_t layer, float* x, size_t stride, uint32_t heads, uint32_t head_stride);
  strata::cuda::Attention AttentionOf(uint32_t layer) const;
  void AttendLatents(uint32_t layer);

  void GateRows(const MlpSpec& mlp, uint32_t rows, size_t stride, uint32_t width);
  void GatedProducts(const MlpSpec& mlp, const DeviceLayer& weights, const RowInputs& inputs,
                     uint32_t width);
  void MixtureMlp(const LayerSpec& spec, const DeviceLayer& weights);
  void MultiplyByExperts(const LayerSpec& spec, const DeviceLayer& weights,
                         const RowInputs& normed);

  // Logits of `rows` of Head's rows from `first` on, at most kDeviceLogitRows, to `out` of the
  // scratch.
  void ComputeLogits(uint32_t first, uint32_t rows, float* out);
  void ChooseLargest();
  absl::Status ReadManyLogits(std::span<float> out);

  const DeviceLayer& WeightsOf(uint32_t layer) const {
    return weights_.layer(layer - spec_.first_layer);
  }

  StageSpec spec_;  // Only ResizeKv changes it: kv_pages.
  const ShardCalls calls_;
  const std::shared_ptr<Device> device_;
  const Stream stream_;
  const std::unique_ptr<Transfers> transfers_;
  DeviceWeights weights_;
  DeviceScratch scratch_;
  DeviceBuffer rotary_;  // See RopesOf.
  DeviceKv kv_;
  BatchOnDevice batch_;
  const RowProducts products_;
  const ResidualBranch branch_;
  uint32_t head_rows_ = 0;
  std::array<OwnedEvent, 2> computed_;  // A half of the logits.
  StepLaunches launches_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_CUDA_SHARD_H_
