// What the queries of one span see of its keys, as a graph of MLX.
#ifndef STRATA_WORKER_BACKEND_MLX_ATTENTION_H_
#define STRATA_WORKER_BACKEND_MLX_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "mlx/array.h"
#include "worker/backend/mlx/key_spans.h"

namespace strata::mlx {

// A span's arrays that are the same in all layers of a KV group.
struct SpanArrays {
  KeySpan span;
  uint32_t window = 0;
  ::mlx::core::array pages;    // int32 [pages]
  ::mlx::core::array key_at;   // int32 [1, 1, 1, keys]: their positions.
  ::mlx::core::array is_kept;  // bool [keys, 1]: whether the pages have them.
};
// May throw.
SpanArrays ArraysOf(KeySpan span, uint32_t window);

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
// Of what KvArrays gives of the span's pages; no values with latent vectors. May throw.
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
