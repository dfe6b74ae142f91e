#include "worker/backend/mlx/attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/status.h"
#include "mlx/fast.h"
#include "mlx/ops.h"
#include "worker/backend/mlx/layer_ops.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// [rows, heads, width] as MLX attends: [1, heads, rows, width].
mx::array HeadsFirst(const mx::array& rows) {
  return mx::expand_dims(mx::transpose(rows, {1, 0, 2}), 0);
}

std::vector<int> DimensionsOf(const mx::array& array) {
  return {array.shape().begin(), array.shape().end()};
}

// Where scores are capped, which MLX's attention does not do. [1, heads, rows, width]
mx::array AttendCapped(const AttentionSpec& attention, const mx::array& queries,
                       const mx::array& keys, const mx::array& values, const mx::array& mask,
                       const std::optional<mx::array>& sinks) {
  const int heads = queries.shape(1);
  const int kv_heads = keys.shape(1);
  const int rows = queries.shape(2);
  const mx::array q = mx::reshape(queries * mx::array(attention.scale),
                                  {kv_heads, heads / kv_heads * rows, queries.shape(3)});
  const mx::array k = mx::squeeze(keys, 0);
  mx::array scores = mx::matmul(q, mx::transpose(k, {0, 2, 1}));
  scores = mx::reshape(SoftCapped(scores, attention.soft_cap), {1, heads, rows, keys.shape(2)});
  scores = mx::where(mask, scores, mx::array(std::numeric_limits<float>::lowest()));
  if (sinks.has_value()) {
    const mx::array sink =
        mx::broadcast_to(mx::reshape(*sinks, {1, heads, 1, 1}), {1, heads, rows, 1});
    scores = mx::concatenate({scores, sink}, 3);
  }
  mx::array weights = mx::softmax(scores, -1, /*precise=*/true);
  if (sinks.has_value()) {
    weights = mx::slice(weights, {0, 0, 0, 0}, {1, heads, rows, keys.shape(2)});
  }
  weights = mx::reshape(weights, {kv_heads, heads / kv_heads * rows, keys.shape(2)});
  return mx::reshape(mx::matmul(weights, mx::squeeze(values, 0)),
                     {1, heads, rows, values.shape(3)});
}

}  // namespace

SpanArrays ArraysOf(KeySpan span, uint32_t window) {
  const int first = static_cast<int>(span.first_key);
  const int keys = static_cast<int>(span.keys);
  const mx::array at = mx::arange(first, first + keys, mx::int32);
  const mx::array kept =
      mx::logical_and(mx::greater_equal(at, mx::array(static_cast<int>(span.first_kept))),
                      mx::less(at, mx::array(static_cast<int>(span.length()))));
  mx::array pages = Indices(span.pages);
  return {.span = std::move(span),
          .window = window,
          .pages = std::move(pages),
          .key_at = mx::reshape(at, {1, 1, 1, keys}),
          .is_kept = mx::reshape(kept, {keys, 1})};
}

uint32_t TileRows(const AttentionSpec& attention, const KeySpan& span, uint64_t bytes,
                  uint32_t most) {
  const uint64_t row = uint64_t{attention.heads} * span.keys * sizeof(float);
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / row, 1, std::max(1u, most)));
}

SpanKv KvOf(const AttentionSpec& attention, const SpanArrays& span, const mx::array& keys,
            const std::optional<mx::array>& values) {
  const int rank = static_cast<int>(attention.latent.rank);
  const auto by_head = [&](const mx::array& rows) {
    const int heads = static_cast<int>(attention.kv_heads);
    return HeadsFirst(
        mx::reshape(rows, {static_cast<int>(span.span.keys), heads, rows.shape(1) / heads}));
  };
  // What lies where there is no value may be no number, which a weight of 0 would not undo.
  const mx::array kept = mx::where(
      span.is_kept, values.has_value() ? *values : Columns(keys, 0, rank), mx::array(0.0f));
  return {by_head(keys), by_head(kept)};
}

absl::StatusOr<mx::array> Attended(const AttentionSpec& attention, const SpanArrays& span,
                                   uint32_t first, uint32_t rows, const mx::array& queries,
                                   const SpanKv& kv, const std::optional<mx::array>& sinks) {
  const mx::array q = HeadsFirst(queries);
  const auto& [k, v] = kv;
  const int position = static_cast<int>(span.span.position + first);
  const mx::array row_at =
      mx::reshape(mx::arange(position, position + static_cast<int>(rows), mx::int32),
                  {1, 1, static_cast<int>(rows), 1});
  mx::array mask = mx::less_equal(span.key_at, row_at);
  if (span.window != 0) {
    mask = mx::logical_and(
        mask, mx::greater(span.key_at, row_at - mx::array(static_cast<int>(span.window))));
  }
  RETURN_IF_ERROR(CheckAttentionShapes(
      span.span, first, rows,
      {DimensionsOf(q), DimensionsOf(k), DimensionsOf(v), DimensionsOf(mask)}));
  const mx::array attended =
      attention.soft_cap != 0
          ? AttendCapped(attention, q, k, v, mask, sinks)
          : mx::fast::scaled_dot_product_attention(q, k, v, attention.scale, "array", mask, sinks);
  return mx::reshape(mx::transpose(mx::squeeze(attended, 0), {1, 0, 2}),
                     {static_cast<int>(rows), -1});
}

}  // namespace strata::mlx
