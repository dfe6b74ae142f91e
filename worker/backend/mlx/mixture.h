// Mixtures of experts as graphs of MLX. All may throw.
#ifndef STRATA_WORKER_BACKEND_MLX_MIXTURE_H_
#define STRATA_WORKER_BACKEND_MLX_MIXTURE_H_

#include <optional>

#include "common/model/model_spec.h"
#include "mlx/array.h"
#include "worker/backend/mlx/array_weights.h"
#include "worker/backend/mlx/layer_ops.h"

namespace strata::mlx {

// Which experts compute each row, by ascending id (uint32 [rows, used]), and what their outputs are
// multiplied by.
struct ChosenExperts {
  ::mlx::core::array experts;
  ::mlx::core::array weights;
};
// From the router's logits [rows, experts]: those of the largest scores, of equal ones the lowest
// ids; a logit that is no number counts as the largest, so that nothing finite comes of it.
// `corrections`: where spec.corrected.
ChosenExperts ChooseExperts(const RouterSpec& spec, const ::mlx::core::array& logits,
                            const std::optional<::mlx::core::array>& corrections);

// What the experts, and the shared one if there is one, give for `inputs` [rows, hidden].
::mlx::core::array Mixture(const RowBlocks& blocks, const MlpSpec& mlp, const LayerArrays& weights,
                           const ::mlx::core::array& inputs);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_MIXTURE_H_
