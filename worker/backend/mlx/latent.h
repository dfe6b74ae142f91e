// Latent attention (LatentSpec) as graphs of MLX: queries meet what KV keeps of a position, and
// what they attend to becomes values afterwards. All may throw.
#ifndef STRATA_WORKER_BACKEND_MLX_LATENT_H_
#define STRATA_WORKER_BACKEND_MLX_LATENT_H_

#include "common/model/model_spec.h"
#include "mlx/array.h"
#include "worker/backend/mlx/array_weights.h"
#include "worker/backend/mlx/layer_ops.h"

namespace strata::mlx {

// What KV keeps of each row: [rows, rank + rope_dim]. `inputs`: the branch's, [rows, hidden];
// `rotation`: null where nothing turns.
::mlx::core::array LatentKept(const RowBlocks& blocks, const AttentionSpec& attention,
                              const LayerArrays& weights, const ::mlx::core::array& inputs,
                              const Rotation* rotation);

// Queries as they meet that: [rows, heads, rank + rope_dim].
::mlx::core::array LatentQueries(const RowBlocks& blocks, const AttentionSpec& attention,
                                 const LayerArrays& weights, const ::mlx::core::array& inputs,
                                 const Rotation* rotation);

// Values of what was attended to, [rows, heads * rank]: [rows, heads * value_dim].
::mlx::core::array LatentValues(const RowBlocks& blocks, const AttentionSpec& attention,
                                const LayerArrays& weights, const ::mlx::core::array& attended);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_LATENT_H_
