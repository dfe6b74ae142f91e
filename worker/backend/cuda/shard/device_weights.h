// A stage's weights on a device: those of the CPU's loader, panel by panel, so that both backends
// read what they keep packed from the same store and multiply the same integers.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_WEIGHTS_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernels/kernels.h"

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
  // Copies all; the host's may go afterwards.
  absl::Status Upload(Device* device, const cpu::StageWeights& weights);

  const DeviceLayer& layer(uint32_t local) const { return layers_[local]; }
  const Embedding& embedding() const { return embedding_; }
  DeviceVector final_norm() const { return final_norm_; }
  const Matrix& head() const { return head_; }
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  DeviceBuffer memory_;
  std::vector<DeviceLayer> layers_;
  Embedding embedding_;
  DeviceVector final_norm_;
  Matrix head_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_WEIGHTS_H_
