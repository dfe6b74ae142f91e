#include "worker/backend/mlx/key_spans.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/model/window.h"
#include "common/status.h"

namespace strata::mlx {
namespace {

static_assert(kLeastSpanTokens % kPageTokens == 0);

std::string ShapeText(const std::vector<int>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ","), ")");
}

// Of a span's keys; what the table does not have is filled with a page that it has.
std::vector<PageId> PagesOf(const PageTableView& table, uint32_t first_key, uint32_t keys,
                            uint32_t first_kept, uint32_t length) {
  const uint32_t first = first_kept / kPageTokens;
  const uint32_t end = (length + kPageTokens - 1) / kPageTokens;
  std::vector<PageId> pages(keys / kPageTokens, table.pages[first - table.first_page]);
  const uint32_t begin = first_key / kPageTokens;
  for (uint32_t page = std::max(first, begin); page < end; ++page) {
    pages[page - begin] = table.pages[page - table.first_page];
  }
  return pages;
}

}  // namespace

std::vector<KeySpan> KeySpansOf(std::span<const BatchItem> items, uint32_t group, uint32_t window) {
  std::vector<KeySpan> spans;
  for (uint32_t i = 0; i < items.size(); ++i) {
    const BatchItem& item = items[i];
    for (uint32_t done = 0; done < item.rows;) {
      KeySpan& span = spans.emplace_back();
      span.item = i;
      span.first_row = item.first_row + done;
      span.position = item.position + done;
      const uint32_t tokens = SpanTokensAt(span.position);
      const uint32_t first_of_span = span.position / tokens * tokens;
      const uint32_t end = first_of_span + tokens;
      span.rows = std::min(item.rows - done, end - span.position);
      span.first_key = FirstSeen(first_of_span, window) / kPageTokens * kPageTokens;
      span.keys = end - span.first_key;
      span.first_kept = FirstSeen(span.position, window);
      span.pages =
          PagesOf(item.tables[group], span.first_key, span.keys, span.first_kept, span.length());
      done += span.rows;
    }
  }
  return spans;
}

absl::Status CheckAttentionShapes(const KeySpan& span, uint32_t first, uint32_t rows,
                                  const AttentionShapes& shapes) {
  const auto wrong = [&](const std::string& what) -> absl::Status {
    return Error(
        absl::StatusCode::kInternal, "ATTENTION_SHAPE",
        absl::StrCat("attention of ", rows, " rows at position ", span.position + first,
                     " of a sequence of length ", span.length(), ": ", what, " (queries ",
                     ShapeText(shapes.queries), ", keys ", ShapeText(shapes.keys), ", values ",
                     ShapeText(shapes.values), ", mask ", ShapeText(shapes.mask), ")"));
  };
  const auto& [q, k, v, mask] = shapes;
  if (q.size() != 4 || k.size() != 4 || v.size() != 4 || mask.size() != 4) {
    return wrong("an array has not four dimensions");
  }
  if (rows == 0 || first > span.rows || rows > span.rows - first) {
    return wrong("these are not the span's rows");
  }
  if (q[0] != 1 || q[1] <= 0 || q[2] != static_cast<int>(rows)) {
    return wrong("the queries are not of these rows");
  }
  if (k[0] != 1 || k[1] <= 0 || q[1] % k[1] != 0 || k[2] != static_cast<int>(span.keys) ||
      k[3] != q[3]) {
    return wrong(absl::StrCat("the keys are not of positions ", span.first_key, " to ",
                              span.first_key + span.keys));
  }
  if (v[0] != 1 || v[1] != k[1] || v[2] != k[2]) {
    return wrong("the values are not of the keys");
  }
  if (mask != std::vector<int>{1, 1, q[2], k[2]}) {
    return wrong("the mask is not of these rows and keys");
  }
  return absl::OkStatus();
}

}  // namespace strata::mlx
