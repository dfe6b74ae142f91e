// The MLP branch of a dense layer, and the part of a mixture's that all rows share.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_GATED_MLP_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_GATED_MLP_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/cpu/shard/products.h"
#include "worker/backend/cpu/shard/residual_stream.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Owns what is between the matrices of an MLP, which it hands to a mixture's experts.
class GatedMlp {
 public:
  GatedMlp(const StageState& stage, Products* products, ResidualStream* residual)
      : stage_(stage), products_(*products), residual_(*residual) {}
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const { return gate_.bytes() + up_.bytes() + gated_.bytes(); }

  // Adds the branch of a dense layer; `layer` is the model's index. Fails where ranks do.
  absl::Status Compute(uint32_t layer);
  // Gate times up, activated, of which `ffn` says what is each rank's. Returns what `down` takes.
  absl::StatusOr<Products::Inputs> MultiplyGated(const Products::Inputs& inputs, const MlpSpec& mlp,
                                                 const LayerWeights& weights,
                                                 const RankColumns& ffn);
  // gate := the activated product of gate and up.
  void Activate(const MlpSpec& mlp, float* gate, const float* up, size_t count) const;
  // [rows][sizes.ffn], or [places][sizes.expert_ffn].
  float* gate() { return gate_.as<float>(); }
  float* up() { return up_.as<float>(); }

 private:
  // Quantizes what a thread has computed of gate times up, the outputs of the panels [first, end),
  // which its cache still holds. Of a block that two threads have a half of each, the second does.
  void QuantizeGated(const Products::Inputs& down, size_t first, size_t end);

  const StageState& stage_;
  Products& products_;
  ResidualStream& residual_;
  AlignedBuffer gate_, up_;
  AlignedBuffer gated_;                       // Quantized rows of one block, of what gate_ holds.
  std::vector<std::atomic<uint8_t>> halves_;  // Of QuantizeGated: by block of 32.
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_GATED_MLP_H_
