#include "worker/backend/mlx/layer_ops.h"

#include <algorithm>
#include <vector>

#include "common/footprint/mlx_limits.h"
#include "mlx/fast.h"
#include "mlx/ops.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// By a matrix of floats. One in two bytes is widened for the product alone, a part after the other,
// so that no whole one in float32 is ever there.
mx::array MultiplyByFloats(const mx::array& x, const mx::array& weight) {
  if (weight.dtype() == mx::float32) {
    return mx::matmul(x, mx::transpose(weight));
  }
  const int outputs = weight.shape(0);
  const int inputs = weight.shape(1);
  const int part = std::max(1, static_cast<int>(kMlxWidenedBytes / sizeof(float)) / inputs);
  std::vector<mx::array> parts;
  for (int first = 0; first < outputs; first += part) {
    const mx::array rows = mx::slice(weight, {first, 0}, {std::min(first + part, outputs), inputs});
    parts.push_back(mx::matmul(x, mx::transpose(mx::astype(rows, mx::float32))));
  }
  return parts.size() == 1 ? parts.front() : mx::concatenate(parts, -1);
}

mx::array MultiplyOnce(const mx::array& x, const MatrixArrays& matrix) {
  if (!matrix.scales.has_value()) {
    return MultiplyByFloats(x, *matrix.weight);
  }
  return mx::quantized_matmul(x, *matrix.weight, *matrix.scales, matrix.biases,
                              /*transpose=*/true, static_cast<int>(matrix.layout.group),
                              static_cast<int>(matrix.layout.bits), ModeOf(matrix.layout));
}

mx::array GeluTanh(const mx::array& x) {
  const mx::array inner = mx::array(0.7978845608028654f) * (x + mx::array(0.044715f) * (x * x * x));
  return mx::array(0.5f) * x * (mx::array(1.0f) + mx::tanh(inner));
}

}  // namespace

const char* ModeOf(const ArrayLayout& layout) { return layout.mxfp4 ? "mxfp4" : "affine"; }

mx::array Indices(std::span<const uint32_t> values) {
  return mx::array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

mx::array RowsOf(const MatrixArrays& matrix, const mx::array& rows) {
  const mx::array weight = mx::take(*matrix.weight, rows, 0);
  if (!matrix.scales.has_value()) {
    return mx::astype(weight, mx::float32);
  }
  const std::optional<mx::array> biases =
      matrix.biases.has_value() ? std::make_optional(mx::take(*matrix.biases, rows, 0))
                                : std::nullopt;
  return mx::dequantize(weight, mx::take(*matrix.scales, rows, 0), biases,
                        static_cast<int>(matrix.layout.group), static_cast<int>(matrix.layout.bits),
                        ModeOf(matrix.layout), std::nullopt, mx::float32);
}

mx::array Columns(const mx::array& x, int begin, int end) {
  mx::Shape first(x.ndim(), 0);
  mx::Shape stop = x.shape();
  first.back() = begin;
  stop.back() = end;
  return mx::slice(x, first, stop);
}

mx::array InBlocks(const RowBlocks& blocks, const mx::array& x, const RowProduct& product) {
  const int rows = x.shape(0);
  if (blocks.rows == 0 || rows == blocks.rows) {
    return product(x);
  }
  const auto part = [](const mx::array& of, int begin, int end) {
    mx::Shape first(of.ndim(), 0);
    mx::Shape stop = of.shape();
    first.front() = begin;
    stop.front() = end;
    return mx::slice(of, first, stop);
  };
  mx::Shape missing = x.shape();
  missing.front() = (blocks.rows - rows % blocks.rows) % blocks.rows;
  const mx::array whole =
      missing.front() == 0 ? x : mx::concatenate({x, mx::zeros(missing, x.dtype())}, 0);
  std::vector<mx::array> parts;
  for (int first = 0; first < rows; first += blocks.rows) {
    parts.push_back(product(part(whole, first, first + blocks.rows)));
  }
  const mx::array all = parts.size() == 1 ? parts.front() : mx::concatenate(parts, 0);
  return missing.front() == 0 ? all : part(all, 0, rows);
}

mx::array Multiply(const RowBlocks& blocks, const mx::array& x, const Linear& linear) {
  const mx::array product =
      InBlocks(blocks, x, [&](const mx::array& rows) { return MultiplyOnce(rows, linear.matrix); });
  return linear.bias.has_value() ? product + *linear.bias : product;
}

mx::array Normed(const mx::array& x, const mx::array& weight, float eps) {
  return mx::fast::rms_norm(x, weight, eps);
}

Rotation RotationOfRows(std::span<const float* const> cosines, uint64_t sines, uint32_t half,
                        bool neighbours) {
  const int rows = static_cast<int>(cosines.size());
  const int pairs = static_cast<int>(half);
  std::vector<float> c;
  std::vector<float> s(size_t{2} * cosines.size() * half);
  c.reserve(cosines.size() * half);
  for (size_t row = 0; row < cosines.size(); ++row) {
    c.insert(c.end(), cosines[row], cosines[row] + half);
    float* const to = &s[2 * row * half];
    for (uint32_t i = 0; i < half; ++i) {
      const float sine = cosines[row][sines + i];
      to[neighbours ? 2 * i : i] = -sine;
      to[neighbours ? 2 * i + 1 : half + i] = sine;
    }
  }
  const mx::Shape cosine_shape =
      neighbours ? mx::Shape{rows, 1, pairs, 1} : mx::Shape{rows, 1, 1, pairs};
  const mx::Shape sine_shape =
      neighbours ? mx::Shape{rows, 1, pairs, 2} : mx::Shape{rows, 1, 2, pairs};
  return {.neighbours = neighbours,
          .cosines = mx::array(c.data(), cosine_shape, mx::float32),
          .sines = mx::array(s.data(), sine_shape, mx::float32)};
}

mx::array Rotated(const mx::array& x, const Rotation& rotation) {
  const int axis = rotation.neighbours ? 3 : 2;  // Of the two of a pair.
  const int turning = rotation.sines.shape(2) * rotation.sines.shape(3);
  const int rows = x.shape(0);
  const int heads = x.shape(1);
  const int width = x.shape(2);
  const mx::array pairs =
      mx::reshape(turning < width ? Columns(x, 0, turning) : x,
                  {rows, heads, rotation.sines.shape(2), rotation.sines.shape(3)});
  // (a, b) becomes (b, a), and what is sought (a * c - b * s, b * c + a * s).
  mx::Shape first(4, 0);
  mx::Shape stop = pairs.shape();
  mx::Shape stride(4, 1);
  first[axis] = 1;
  stop[axis] = -3;  // Before the first.
  stride[axis] = -1;
  const mx::array swapped = mx::slice(pairs, first, stop, stride);
  const mx::array turned =
      mx::reshape(pairs * rotation.cosines + swapped * rotation.sines, {rows, heads, turning});
  return turning < width ? mx::concatenate({turned, Columns(x, turning, width)}, 2) : turned;
}

mx::array Gated(const MlpSpec& mlp, const mx::array& gate, const mx::array& up) {
  switch (mlp.activation) {
    case ActivationKind::kSilu:
      return gate * mx::sigmoid(gate) * up;
    case ActivationKind::kGeluTanh:
      return GeluTanh(gate) * up;
    case ActivationKind::kClampedSilu:
      break;
  }
  const mx::array clamp(mlp.clamp);
  const mx::array g = mx::minimum(gate, clamp);
  const mx::array u = mx::maximum(mx::minimum(up, clamp), mx::array(-mlp.clamp));
  return g * mx::sigmoid(mx::array(mlp.gain) * g) * (u + mx::array(1.0f));
}

mx::array SoftCapped(const mx::array& x, float cap) {
  return cap == 0 ? x : mx::tanh(x / mx::array(cap)) * mx::array(cap);
}

}  // namespace strata::mlx
