// A loaded stage on a device: each named step of a layer is some launches on its stream.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_CUDA_SHARD_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_CUDA_SHARD_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
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
#include "worker/backend/rank_shard.h"
#include "worker/backend/shard_calls.h"

namespace strata::cuda {

// What one rank of a stage launches. Launches return before their work is done; the Read...s wait.
// Where there are other ranks, steps are launched kernel by kernel.
class CudaShard : public RankShard {
 public:
  // `spec` is the stage's, of which this is `rank` of `ranks` (SplitOutputs); it was found
  // supported. `weights` are all of the rank's, on `device`, to which `transfers` copies. Where
  // there are other ranks, its link is yet to be connected.
  static absl::StatusOr<std::unique_ptr<CudaShard>> Create(const StageSpec& spec,
                                                           const std::vector<RankOutputs>& ranks,
                                                           uint32_t rank, DeviceWeights weights,
                                                           std::unique_ptr<Transfers> transfers,
                                                           std::shared_ptr<Device> device);
  ~CudaShard() override { link_.Leave(); }

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

  absl::Status Enter() override { return device_->MakeCurrent(); }
  absl::Status Finish() override { return link_.Finish(); }
  void Connect(std::unique_ptr<Collective> collective, uint64_t epoch) override {
    link_.Connect(std::move(collective), epoch);
  }
  void Abort(const absl::Status& why) override { link_.Abort(why); }
  absl::Status ShareResidual() override;
  // What lies on the host a collective of devices does not gather: ranks are of one process.
  absl::Status GatherLogits(std::span<float> /*logits*/) override { return OfOtherProcesses(); }
  absl::Status GatherBytes(uint8_t* /*row*/, std::span<const ByteColumns> /*columns*/) override {
    return OfOtherProcesses();
  }
  // None is given away.
  void ForPageParts(
      uint32_t /*group*/,
      const std::function<void(size_t, size_t, size_t, size_t)>& /*copy*/) const override {}
  const ShardCalls& calls() const override { return calls_; }
  const Batch& batch() const override { return given_; }

 private:
  CudaShard(const StageSpec& spec, const std::vector<RankOutputs>& ranks, uint32_t rank,
            DeviceWeights weights, std::unique_ptr<Transfers> transfers,
            std::shared_ptr<Device> device);

  static absl::Status OfOtherProcesses() {
    return absl::InternalError("ranks of the cuda backend are of one process");
  }

  // What a call launches, on rows that are there.
  absl::Status Launch(const StepCall& call);
  // Launches what was put off.
  absl::Status Flush();
  void LaunchEmbedding();
  absl::Status LaunchAttention(uint32_t layer);
  absl::Status LaunchMlp(uint32_t layer);
  void LaunchHead();

  // Attention's parts. Without `queries` only keys and values are wanted.
  absl::Status AppendRows(uint32_t layer, bool queries);
  void AppendLatents(uint32_t layer);
  // Queries and keys that are normed over the heads of all ranks; and x [rows][stride] of one of
  // these, which has the rank's `own` of all columns, of which it gives the others those in
  // `columns`.
  absl::Status NormProjections(uint32_t layer, bool queries);
  absl::Status NormProjection(const LayerSpec& spec, const DeviceVector& weight,
                              const RankColumns& columns, OutputRange own, float* x, size_t stride);
  absl::Status KeepRows(std::span<const uint32_t> rows);
  absl::Status FinishAttention(uint32_t layer);
  // Where what the rank's heads attended to begins.
  float* OwnAttended(uint32_t layer) const;
  void RotateHeads(uint32_t layer, float* x, size_t stride, uint32_t heads, uint32_t head_stride);
  strata::cuda::Attention AttentionOf(uint32_t layer) const;
  void AttendLatents(uint32_t layer);

  void GateRows(const MlpSpec& mlp, uint32_t rows, size_t stride, OutputRange columns);
  // To the scratch's gate, of all ranks.
  absl::Status GatedProducts(const MlpSpec& mlp, const DeviceLayer& weights,
                             const RowInputs& inputs, const RankColumns& columns);
  absl::Status MixtureMlp(uint32_t layer);
  absl::Status MultiplyByExperts(uint32_t layer, const RowInputs& normed);

  // Logits of `rows` of Head's rows from `first` on, at most kDeviceLogitRows, to `out` of the
  // scratch: the rank's columns of each.
  void ComputeLogits(uint32_t first, uint32_t rows, float* out);
  void ChooseLargest();
  absl::Status ReadManyLogits(std::span<float> out);
  // Copies logits of `rows` rows of the scratch to the rank's columns of `out`, [rows][vocab].
  absl::Status OutLogits(float* out, const float* logits, uint32_t rows,
                         const OwnedEvent* computed = nullptr);

  const DeviceLayer& WeightsOf(uint32_t layer) const {
    return weights_.layer(layer - spec_.first_layer);
  }

  // Of the stage, but that its layers have this rank's heads alone. Only ResizeKv changes it:
  // kv_pages.
  StageSpec spec_;
  const ShardCalls calls_;
  RankLink link_;
  const size_t attended_width_;  // Of a row, of the heads of all ranks.
  const std::shared_ptr<Device> device_;
  const Stream stream_;
  const std::unique_ptr<Transfers> transfers_;
  DeviceWeights weights_;
  DeviceScratch scratch_;
  DeviceBuffer rotary_;  // See RopesOf.
  DeviceKv kv_;
  BatchOnDevice batch_;
  Batch given_;  // What was begun, of the rows that are left.
  const RowProducts products_;
  const ResidualBranch branch_;
  uint32_t head_rows_ = 0;
  std::array<OwnedEvent, 2> computed_;  // A half of the logits.
  StepLaunches launches_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_CUDA_SHARD_H_
