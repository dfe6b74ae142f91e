#include "worker/backend/mlx/latent.h"

#include "mlx/ops.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// x [rows, heads, inputs] by each head's matrix [heads, inputs, outputs]: [rows, heads, outputs].
mx::array ByHeads(const RowBlocks& blocks, const mx::array& x, const mx::array& heads) {
  return InBlocks(blocks, x, [&](const mx::array& rows) {
    return mx::transpose(mx::matmul(mx::transpose(rows, {1, 0, 2}), heads), {1, 0, 2});
  });
}

mx::array Turned(const mx::array& heads) { return mx::transpose(heads, {0, 2, 1}); }

// [heads, nope_dim, rank]
mx::array KeyHeads(const LatentSpec& latent, const LayerArrays& weights) {
  if (weights.stored_key_heads.weight.has_value()) {
    return Turned(*weights.stored_key_heads.weight);
  }
  const mx::array& both = *weights.stored_value_heads.weight;
  return mx::slice(both, {0, 0, 0},
                   {both.shape(0), static_cast<int>(latent.nope_dim), both.shape(2)});
}

// [heads, rank, value_dim]
mx::array ValueHeads(const LatentSpec& latent, const LayerArrays& weights) {
  const mx::array& stored = *weights.stored_value_heads.weight;
  if (weights.stored_key_heads.weight.has_value()) {
    return Turned(stored);
  }
  return Turned(mx::slice(stored, {0, static_cast<int>(latent.nope_dim), 0}, stored.shape()));
}

}  // namespace

mx::array LatentKept(const RowBlocks& blocks, const AttentionSpec& attention,
                     const LayerArrays& weights, const mx::array& inputs,
                     const Rotation* rotation) {
  const LatentSpec& latent = attention.latent;
  const int rank = static_cast<int>(latent.rank);
  const mx::array both = Multiply(blocks, inputs, weights.kv_latent);
  const mx::array vector = Normed(Columns(both, 0, rank), *weights.kv_latent_norm, latent.norm_eps);
  if (rotation == nullptr) {
    return vector;
  }
  const mx::array key = mx::expand_dims(Columns(both, rank, both.shape(1)), 1);
  return mx::concatenate({vector, mx::squeeze(Rotated(key, *rotation), 1)}, 1);
}

mx::array LatentQueries(const RowBlocks& blocks, const AttentionSpec& attention,
                        const LayerArrays& weights, const mx::array& inputs,
                        const Rotation* rotation) {
  const LatentSpec& latent = attention.latent;
  const int nope = static_cast<int>(latent.nope_dim);
  const mx::array from = latent.query_rank == 0
                             ? inputs
                             : Normed(Multiply(blocks, inputs, weights.query_latent),
                                      *weights.query_latent_norm, latent.norm_eps);
  const mx::array queries = mx::reshape(
      Multiply(blocks, from, weights.q),
      {inputs.shape(0), static_cast<int>(attention.heads), static_cast<int>(attention.head_dim)});
  const mx::array absorbed = ByHeads(blocks, Columns(queries, 0, nope), KeyHeads(latent, weights));
  if (rotation == nullptr) {
    return absorbed;
  }
  const mx::array turning = Columns(queries, nope, queries.shape(2));
  return mx::concatenate({absorbed, Rotated(turning, *rotation)}, 2);
}

mx::array LatentValues(const RowBlocks& blocks, const AttentionSpec& attention,
                       const LayerArrays& weights, const mx::array& attended) {
  const LatentSpec& latent = attention.latent;
  const int rows = attended.shape(0);
  const int heads = static_cast<int>(attention.heads);
  const mx::array summed = mx::reshape(attended, {rows, heads, static_cast<int>(latent.rank)});
  return mx::reshape(ByHeads(blocks, summed, ValueHeads(latent, weights)),
                     {rows, heads * static_cast<int>(latent.value_dim)});
}

}  // namespace strata::mlx
