// Experts that are stored fused, or under other names (common/model/gpt_oss_experts.h), as backends
// read experts. No bytes are copied: fused experts that lie inputs first are the source's to make
// (worker/backend/gpt_oss_tensors.h).
#ifndef STRATA_WORKER_BACKEND_EXPERT_VIEWS_H_
#define STRATA_WORKER_BACKEND_EXPERT_VIEWS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/backend/tensor_source.h"

namespace strata {

// Any thread. Of a fused tensor its experts are given up as they are released, which a load does in
// the order in which they lie.
class ExpertViews : public TensorSource {
 public:
  // Of the layers [first, last]; every other tensor is the source's own. `source` outlives it.
  ExpertViews(const ModelSpec& spec, uint32_t first, uint32_t last, const TensorSource& source);

  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override;
  absl::Status Prepare(const std::vector<std::string>& names) const override;
  // INVALID_ARGUMENT (TENSOR_SHAPE) where a fused tensor has another shape than the experts have.
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  void Release(std::string_view name, size_t bytes) const override;

 private:
  // Rows of a tensor [experts, rows of each, inputs], counted over all experts; or all of one.
  struct View {
    std::string stored;
    uint64_t experts = 0;  // 0: the tensor as it is.
    uint64_t all_rows = 0;
    uint64_t first_row = 0;
    uint64_t rows = 0;
    uint64_t inputs = 0;
  };
  void AddFused(const ModelSpec& spec, const MlpSpec& mlp, const std::string& layer);
  void AddMlxGptOss(const MlpSpec& mlp, const std::string& layer);
  // Whether the stored tensor is what the view is of.
  static absl::Status Check(const View& view, const std::vector<uint64_t>& shape, uint64_t bytes);

  const TensorSource& source_;
  std::map<std::string, View, std::less<>> views_;  // By the name that backends ask for.
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_EXPERT_VIEWS_H_
