// A stage's weights on a device: those of the CPU's loader, panel by panel, so that both backends
// read what they keep packed from the same store and multiply the same integers.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_WEIGHTS_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/shard/transfers.h"

namespace strata::cuda {

// A norm's weight, or what else a layer has of single numbers; of no width: there is none.
struct DeviceVector {
  const float* data = nullptr;
  uint32_t width = 0;
  bool empty() const { return width == 0; }
};

// Of all experts, or of all heads: the first, for what they have in common, and all on the device.
struct DeviceMatrices {
  Matrix first;
  const Matrix* all = nullptr;
};

// As cpu::LayerWeights.
struct DeviceLayer {
  DeviceVector attention_norm, after_attention_norm;
  Matrix q, k, v, o;
  DeviceVector q_norm, k_norm;
  DeviceVector sinks;
  Matrix query_latent, kv_latent;
  DeviceVector query_latent_norm, kv_latent_norm;
  DeviceMatrices key_heads, value_heads;
  DeviceVector mlp_norm, after_mlp_norm;
  Matrix gate, up, down;
  Matrix router;
  DeviceVector corrections;
  DeviceMatrices expert_gate, expert_up, expert_down;
};

class DeviceWeights {
 public:
  // So that every panel begins on a line of the device's memory.
  static constexpr uint64_t kAlignment = 256;
  // What a layer takes beside its matrices and vectors: lists of its experts', and heads',
  // matrices.
  static uint64_t ListBytes(const LayerSpec& layer);

  // Memory for weights of so many bytes.
  absl::Status Allocate(Device* device, uint64_t bytes);
  // Copies the stage's next layers, of which there is one at least, with what is beside them, the
  // embedding, the last norm and the head. They may go afterwards.
  absl::Status Add(Transfers* transfers, const cpu::StageWeights& weights);

  const DeviceLayer& layer(uint32_t local) const { return layers_[local]; }
  Embedding embedding() const;
  DeviceVector final_norm() const { return final_norm_; }
  const Matrix& head() const { return head_; }
  uint64_t bytes() const { return memory_.bytes(); }
  // As StageWeights has it, of all that was added.
  uint64_t step_read_bytes() const { return step_read_bytes_; }

 private:
  DeviceBuffer memory_;
  uint64_t used_bytes_ = 0;
  uint64_t step_read_bytes_ = 0;
  std::vector<DeviceLayer> layers_;
  Embedding embedding_;
  DeviceVector final_norm_;
  Matrix head_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_WEIGHTS_H_
