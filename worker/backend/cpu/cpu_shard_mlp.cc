// The MLP branch of a loaded stage, where it is dense; cpu_shard_experts.cc has mixtures.
#include <algorithm>

#include "worker/backend/cpu/cpu_shard.h"

namespace strata::cpu {

absl::Status CpuShard::Mlp(uint32_t layer) {
  RETURN_IF_ERROR(CheckLayer(layer));
  const LayerSpec& spec = spec_.model.layers[layer];
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  if (spec.mlp.experts != 0) {
    MixtureMlp(spec, weights);
  } else {
    DenseMlp(spec, weights);
  }
  return absl::OkStatus();
}

void CpuShard::Activate(const MlpSpec& mlp, float* gate, const float* up, size_t count) const {
  switch (mlp.activation) {
    case ActivationKind::kSilu:
      return kernels_->swiglu(gate, up, count, gate);
    case ActivationKind::kGeluTanh:
      return kernels_->geglu(gate, up, count, gate);
    case ActivationKind::kClampedSilu:
      return kernels_->clamped_swiglu(gate, up, count, mlp.clamp, gate);
  }
}

void CpuShard::DenseMlp(const LayerSpec& spec, const LayerWeights& weights) {
  BeginBranch(spec, weights.mlp_norm, {&weights.gate, &weights.up});
  MultiplyGated(spec.mlp, weights, spec.mlp.ffn);
  FinishBranch(weights.down, spec, weights.after_mlp_norm);
}

void CpuShard::MultiplyGated(const MlpSpec& mlp, const LayerWeights& weights, uint32_t ffn) {
  const uint32_t rows = batch_.rows;
  const MatmulArgs gate = Product(weights.gate, rows, gate_.as<float>(), sizes_.ffn, false);
  const MatmulArgs up = Product(weights.up, rows, up_.as<float>(), sizes_.ffn, false);
  pool_->Split(gate.weights.panels(), [&](size_t begin, size_t end) {
    kernels_->matmul(gate, begin, end);
    kernels_->matmul(up, begin, end);
    const size_t first = begin * kLanes;
    const size_t count = std::min<size_t>(end * kLanes, ffn) - first;
    for (uint32_t row = 0; row < rows; ++row) {
      float* const g = gate.out + row * sizes_.ffn + first;
      Activate(mlp, g, up.out + row * sizes_.ffn + first, count);
    }
  });
  Pack(gate_.as<float>(), sizes_.ffn, rows, ffn, {&weights.down});
}

}  // namespace strata::cpu
