// What the calls of Shard ask of their arguments, the same on every device. Each check answers
// INTERNAL (SHARD_MISUSE): a call that fails it is a mistake of the runner's, never of a request.
#ifndef STRATA_WORKER_BACKEND_SHARD_CALLS_H_
#define STRATA_WORKER_BACKEND_SHARD_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/stage.h"

namespace strata {

class ShardCalls {
 public:
  // `spec` outlives this; its kv_pages may change between calls.
  explicit ShardCalls(const StageSpec* spec);

  // Within what the stage was loaded for: items cover the rows in order, positions are within the
  // context, and page tables cover what each item sees with pages that exist.
  absl::Status Begin(const Batch& batch) const;
  // `rows` is, here and below, how many rows the batch has.
  absl::Status Embed(std::span<const uint32_t> token_ids, uint32_t rows) const;
  absl::Status EmbedInputs(std::span<const uint32_t> inputs, size_t values, uint32_t rows) const;
  // The residual stream, set or read as so many floats.
  absl::Status Residual(size_t values, uint32_t rows) const;
  absl::Status Layer(uint32_t layer) const;
  // `kept` are rows of these items, ascending, of each item one behind another.
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> kept,
                               std::span<const BatchItem> items) const;
  absl::Status Head(std::span<const uint32_t> head_rows, uint32_t rows) const;
  absl::Status Logits(size_t values, uint32_t head_rows) const;
  absl::Status Largest(size_t choices, uint32_t head_rows) const;
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) const;
  // Of ReadPage and WritePage; `page_bytes` is what PageBytes says, `bytes` what is given.
  absl::Status PageOf(uint32_t group, PageId page, uint64_t page_bytes, size_t bytes) const;
  absl::Status ResizeKv(std::span<const uint64_t> pages) const;

  // The KV groups that the stage's layers have, ascending. Others have no page tables here.
  std::span<const uint32_t> groups() const { return groups_; }

 private:
  absl::Status CheckItem(const BatchItem& item, uint32_t first_row) const;
  absl::Status CheckPages(const BatchItem& item, uint32_t group) const;

  const StageSpec* const spec_;
  const uint32_t rotary_variants_;
  std::vector<uint32_t> groups_;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_SHARD_CALLS_H_
