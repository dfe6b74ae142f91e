// The attention branch of a layer: projections, rotation, appending to pages, and its end.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ATTENTION_BRANCH_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ATTENTION_BRANCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/shard/attender.h"
#include "worker/backend/cpu/shard/attention_rows.h"
#include "worker/backend/cpu/shard/latent_attention.h"
#include "worker/backend/cpu/shard/products.h"
#include "worker/backend/cpu/shard/residual_stream.h"
#include "worker/backend/cpu/shard/stage_state.h"

namespace strata::cpu {

// Owns the rows of queries, keys, values and what is attended, and the parts that are handed them.
class AttentionBranch {
 public:
  AttentionBranch(const StageState& stage, Products* products, ResidualStream* residual)
      : stage_(stage),
        products_(*products),
        residual_(*residual),
        attender_(stage),
        latent_(stage, products, residual, &attender_, &rows_) {}
  AttentionBranch(const AttentionBranch&) = delete;
  AttentionBranch& operator=(const AttentionBranch&) = delete;
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const { return rows_.bytes() + attender_.bytes() + latent_.bytes(); }

  // Adds the branch of all rows, which there are. This and the next two fail where ranks do.
  absl::Status Compute(uint32_t layer);

  // In parts: what the batch's rows append to the pages, and their `queries`, if they are needed;
  // all but these rows dropped from there on, as the batch drops them; and what is attended, and
  // the branch's end.
  absl::Status AppendKeysAndValues(uint32_t layer, bool queries);
  void KeepRows(std::span<const uint32_t> rows);
  absl::Status Finish(uint32_t layer) { return Finish(layer, /*append=*/false); }

 private:
  // Of KV heads, and of the query heads of each.
  struct HeadRange {
    uint32_t first = 0;
    uint32_t end = 0;
  };
  // Whether each row's heads are turned and appended by the thread that attends them, just before
  // it does (`append`), as no other row sees them in this batch: the step waits for all threads
  // once less, and no thread for what is in another one's cache.
  bool AppendsWhatItAttends(uint32_t layer) const;
  absl::Status ProjectRows(uint32_t layer, bool queries);
  // Norms the rank's part of rows, [rows][stride], of which all ranks' heads are normed at once.
  absl::Status NormProjection(const LayerSpec& spec, const std::vector<float>& weight,
                              const RankColumns& columns, OutputRange own, float* rows,
                              size_t stride);
  // Norms and turns a row's queries and keys, and appends its keys and values.
  void AppendHeads(uint32_t layer, const BatchItem& item, uint32_t row, HeadRange heads);
  absl::Status Finish(uint32_t layer, bool append);

  const StageState& stage_;
  Products& products_;
  ResidualStream& residual_;
  AttentionRows rows_;
  Attender attender_;
  LatentAttention latent_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ATTENTION_BRANCH_H_
