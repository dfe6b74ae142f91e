#include "worker/backend/mlx/mixture.h"

#include <limits>

#include "mlx/ops.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Indices of the `count` largest of each row; of equal ones the lowest. MLX's sort is stable.
mx::array Largest(const mx::array& keys, int count) {
  return Columns(mx::argsort(-keys, -1), 0, count);
}

// Keys of experts whose groups are not used become -inf.
mx::array WithoutOtherGroups(const RouterSpec& spec, const mx::array& keys) {
  const int rows = keys.shape(0);
  const int groups = static_cast<int>(spec.groups);
  const mx::array by_group = mx::reshape(keys, {rows, groups, keys.shape(1) / groups});
  const mx::array descending = -mx::sort(-by_group, -1);
  const mx::array sums = mx::sum(Columns(descending, 0, static_cast<int>(spec.group_best)), -1);
  const mx::array used = Largest(sums, static_cast<int>(spec.groups_used));
  const mx::array is_used =
      mx::any(mx::equal(mx::expand_dims(used, 1),
                        mx::reshape(mx::arange(0, groups, used.dtype()), {1, groups, 1})),
              -1);
  return mx::reshape(mx::where(mx::expand_dims(is_used, 2), by_group, mx::array(-kInfinity)),
                     keys.shape());
}

// x [rows, 1 or used, 1, inputs] by the matrices of the rows' experts: [rows, used, 1, outputs].
mx::array MultiplyByExperts(const mx::array& x, const Linear& linear, const mx::array& experts) {
  const MatrixArrays& matrix = linear.matrix;
  const mx::array product =
      matrix.scales.has_value()
          ? mx::gather_qmm(x, *matrix.weight, *matrix.scales, matrix.biases, std::nullopt, experts,
                           /*transpose=*/true, static_cast<int>(matrix.layout.group),
                           static_cast<int>(matrix.layout.bits), ModeOf(matrix.layout))
          : mx::gather_mm(x, mx::transpose(*matrix.weight, {0, 2, 1}), std::nullopt, experts);
  return linear.bias.has_value() ? product + mx::expand_dims(mx::take(*linear.bias, experts, 0), 2)
                                 : product;
}

}  // namespace

ChosenExperts ChooseExperts(const RouterSpec& spec, const mx::array& logits,
                            const std::optional<mx::array>& corrections) {
  const bool sigmoid = spec.scores == RouterScores::kSigmoid;
  const mx::array scores = sigmoid ? mx::sigmoid(logits) : logits;
  mx::array keys = corrections.has_value() ? scores + *corrections : scores;
  if (spec.groups > 1) {
    keys = WithoutOtherGroups(spec, keys);
  }
  keys = mx::where(mx::isnan(keys), mx::array(kInfinity), keys);
  const mx::array experts = mx::sort(Largest(keys, static_cast<int>(spec.used)), -1);
  const auto of_chosen = [&](const mx::array& of) { return mx::take_along_axis(of, experts, -1); };
  mx::array weights = sigmoid ? of_chosen(scores)
                      : spec.scores == RouterScores::kSoftmax
                          ? of_chosen(mx::softmax(logits, -1, /*precise=*/true))
                          : mx::softmax(of_chosen(logits), -1, /*precise=*/true);
  if (spec.renormalize) {
    weights = weights / mx::sum(weights, -1, /*keepdims=*/true);
  }
  if (spec.scale != 1) {
    weights = weights * mx::array(spec.scale);
  }
  return {experts, weights};
}

mx::array Mixture(const RowBlocks& blocks, const MlpSpec& mlp, const LayerArrays& weights,
                  const mx::array& inputs) {
  const MixtureArrays& mixture = weights.mixture;
  const ChosenExperts chosen =
      ChooseExperts(mlp.router, Multiply(blocks, inputs, mixture.router), mixture.corrections);
  const mx::array x = mx::expand_dims(inputs, {1, 2});
  const mx::array gated = Gated(mlp, MultiplyByExperts(x, mixture.gate, chosen.experts),
                                MultiplyByExperts(x, mixture.up, chosen.experts));
  const mx::array given = mx::squeeze(MultiplyByExperts(gated, mixture.down, chosen.experts), 2);
  const mx::array sum = mx::sum(given * mx::expand_dims(chosen.weights, 2), 1);
  if (mlp.shared_ffn == 0) {
    return sum;
  }
  const mx::array shared =
      Gated(mlp, Multiply(blocks, inputs, weights.gate), Multiply(blocks, inputs, weights.up));
  return Multiply(blocks, shared, weights.down) + sum;
}

}  // namespace strata::mlx
