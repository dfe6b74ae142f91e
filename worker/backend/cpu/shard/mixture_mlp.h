// Mixtures of experts: a router chooses the experts of each row, and each expert computes the rows
// that it was chosen for, as one product. Numerics: router.h; and of each row the branch is what
// its experts give, by ascending id from +0, or from what the shared expert gives, each multiplied
// by its weight before it is added. What an expert gives for a row does not depend on the rows
// beside it.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_MIXTURE_MLP_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_MIXTURE_MLP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/shard/expert_rows.h"
#include "worker/backend/cpu/shard/gated_mlp.h"
#include "worker/backend/cpu/shard/products.h"
#include "worker/backend/cpu/shard/residual_stream.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Owns the router's logits, which rows each expert has, and what it gives for them; is handed what
// is between an expert's matrices.
class MixtureMlp {
 public:
  MixtureMlp(const StageState& stage, Products* products, ResidualStream* residual, GatedMlp* gated)
      : stage_(stage), products_(*products), residual_(*residual), gated_(*gated) {}
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const {
    return router_.bytes() + router_keys_.bytes() + expert_out_.bytes() + expert_rows_.bytes();
  }

  // Adds the branch of a layer with experts; `layer` is the model's index. Fails where ranks do.
  absl::Status Compute(uint32_t layer);

 private:
  void Route(const LayerSpec& spec, const LayerWeights& weights);
  void PackForExperts(const MixtureWeights& mixture);
  absl::Status MultiplyByExperts(const MlpSpec& mlp, const MixtureWeights& mixture,
                                 const RankColumns& ffn);
  absl::Status AddExperts(const LayerSpec& spec, const std::vector<float>& after);
  // What was packed `by_place`, or else one row for all, times an expert's matrix; to [places].
  MatmulArgs ExpertProduct(const Linear& linear, const ExpertRows::Group& group, bool by_place,
                           float* out, size_t stride) const;
  template <typename Function>
  void SplitExperts(size_t panels, const Function& function);

  const StageState& stage_;
  Products& products_;
  ResidualStream& residual_;
  GatedMlp& gated_;
  AlignedBuffer router_, router_keys_;  // [rows][sizes.experts]
  ExpertRows expert_rows_;
  AlignedBuffer expert_out_;  // [places][sizes.hidden]
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_MIXTURE_MLP_H_
