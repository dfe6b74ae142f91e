// What the queries of one span see of its keys, as a graph of MLX.
#ifndef STRATA_WORKER_BACKEND_MLX_ATTENTION_H_
#define STRATA_WORKER_BACKEND_MLX_ATTENTION_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "mlx/array.h"
#include "worker/backend/mlx/key_spans.h"

namespace strata::mlx {

// A span's arrays that are the same in all layers of a KV group whose KV has one shape.
struct SpanArrays {
  KeySpan span;
  uint32_t window = 0;
  ::mlx::core::array slices;  // int32 [KV heads * pages], head by head.
  // Whether the pages have the values, bool [1, KV heads, keys, width of a value] or, as MLX
  // broadcasts it, [1, 1, keys, 1].
  ::mlx::core::array is_kept;
  // Which keys each row sees, bool [1, 1, rows, keys]; none where it is computed in every layer.
  std::optional<::mlx::core::array> mask;
};
// Of a layer's KV.
struct KvShape {
  uint32_t group = 0;
  uint32_t heads = 0;
  uint32_t width = 0;  // Of a value.

  auto operator<=>(const KvShape&) const = default;
};
KvShape KvShapeOf(const AttentionSpec& attention);
// Of all spans of a batch. What is the same in all layers is there once, unless that would take
// more than a little memory. May throw.
std::vector<SpanArrays> ArraysOf(std::vector<KeySpan> spans, const KvShape& shape, uint32_t window);

// Rows of a span that are attended at once: so that their scores stay below `bytes`, but one at
// least, and no more than `most`.
uint32_t TileRows(const AttentionSpec& attention, const KeySpan& span, uint64_t bytes,
                  uint32_t most);

// A layer's keys and values of a span, float32 [1, KV heads, keys, head_dim]; of latent vectors
// what is kept of a position, and its first part.
struct SpanKv {
  ::mlx::core::array keys;
  ::mlx::core::array values;
};
// Of what KvArrays gives of the span's slices; no values with latent vectors. May throw.
SpanKv KvOf(const AttentionSpec& attention, const SpanArrays& span, const ::mlx::core::array& keys,
            const std::optional<::mlx::core::array>& values);

// Of rows [first, first + rows) of the span: `queries`, float32 [rows, heads, width of a key],
// rotated. [rows, heads * width of a value]; INTERNAL (ATTENTION_SHAPE), before MLX has computed
// anything. May throw.
absl::StatusOr<::mlx::core::array> Attended(const AttentionSpec& attention, const SpanArrays& span,
                                            uint32_t first, uint32_t rows,
                                            const ::mlx::core::array& queries, const SpanKv& kv,
                                            const std::optional<::mlx::core::array>& sinks);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_ATTENTION_H_
