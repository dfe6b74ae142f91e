// Which keys the rows of a batch meet, in shapes that follow from their positions alone, and what
// the arrays of one attention have to be. Pure, without MLX.
#ifndef STRATA_WORKER_BACKEND_MLX_KEY_SPANS_H_
#define STRATA_WORKER_BACKEND_MLX_KEY_SPANS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/stage.h"

namespace strata::mlx {

inline constexpr uint32_t kLeastSpanTokens = 32;
inline constexpr uint32_t kMostSpanTokens = 512;

// Positions of the span that `position` lies in, which begins at a multiple of them: an eighth of
// the power of 2 at or below it, within limits, so that few keys are attended in vain, and few
// spans are many rows. Rows of a span meet equally many keys, so that a row's shapes are the same
// alone, in a chunk and in a batch.
constexpr uint32_t SpanTokensAt(uint32_t position) {
  return std::clamp(std::bit_floor(position) / 8, kLeastSpanTokens, kMostSpanTokens);
}

// Rows of one item whose positions lie in one span, and the keys that they meet: of whole pages,
// from the first one that a query at the span's begin sees to the end of the span. What a row does
// not see is masked.
struct KeySpan {
  uint32_t item = 0;       // Of the batch.
  uint32_t first_row = 0;  // Of the batch.
  uint32_t rows = 0;
  uint32_t position = 0;  // Of first_row.
  uint32_t first_key = 0;
  uint32_t keys = 0;
  // Keys [first_kept, position + rows) are in the item's pages; the others are not looked at.
  uint32_t first_kept = 0;
  // Of the keys, 16 to each; where there is none any more, or none yet, any page of the item.
  std::vector<PageId> pages;

  uint32_t length() const { return position + rows; }
};

// Of all items, in the order of their rows. `window`: keys that a query sees, its own included; 0:
// all. `group`: of whose page tables.
std::vector<KeySpan> KeySpansOf(std::span<const BatchItem> items, uint32_t group, uint32_t window);

// Dimensions of one attention's arrays, as MLX broadcasts them.
struct AttentionShapes {
  std::vector<int> queries;  // [1, query heads, rows, width]
  std::vector<int> keys;     // [1, KV heads, keys, width]
  std::vector<int> values;   // [1, KV heads, keys, width of a value]
  std::vector<int> mask;     // [1, 1, rows, keys]
};

// Whether these are the shapes of rows [first, first + rows) of the span; asked before MLX sees
// them. INTERNAL (ATTENTION_SHAPE) names position, length and what does not fit: MLX would
// broadcast some of that, and compute something else.
absl::Status CheckAttentionShapes(const KeySpan& span, uint32_t first, uint32_t rows,
                                  const AttentionShapes& shapes);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_KEY_SPANS_H_
