// What latent vectors become keys and values by (LatentSpec), where it is stored in two tensors, as
// MLX has it: "self_attn.embed_q" [heads, rank, nope_dim], which is applied to queries, and
// "self_attn.unembed_out" [heads, value_dim, rank]. Backends read "self_attn.kv_b_proj" [heads *
// (nope_dim + value_dim), rank]: of each head the former's transpose, then the latter.
#ifndef STRATA_WORKER_BACKEND_LATENT_TENSORS_H_
#define STRATA_WORKER_BACKEND_LATENT_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model_spec.h"
#include "common/mutex.h"
#include "worker/backend/tensor_source.h"

namespace strata {

// Any thread. A tensor is made in float32 when it is found, and in memory until all of it is
// released.
class LatentTensors : public TensorSource {
 public:
  // Of the layers [first, last]; every other tensor is the source's own. `source` outlives it.
  LatentTensors(const ModelSpec& spec, uint32_t first, uint32_t last, const TensorSource& source);

  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override;
  absl::Status Prepare(const std::vector<std::string>& names) const override;
  // INVALID_ARGUMENT (TENSOR_SHAPE) where what is stored has another shape, or is no float.
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  void Release(std::string_view name, size_t bytes) const override;

 private:
  struct Made {
    std::string queries;  // The stored tensors' names.
    std::string outputs;
    LatentSpec latent;
    uint64_t heads = 0;

    uint64_t rows() const { return heads * (latent.nope_dim + latent.value_dim); }
  };
  absl::StatusOr<std::vector<float>> Make(const Made& made) const;

  const TensorSource& source_;
  std::map<std::string, Made, std::less<>> made_;  // By name.
  mutable Mutex mutex_;
  mutable std::map<std::string, std::vector<float>, std::less<>> found_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_LATENT_TENSORS_H_
