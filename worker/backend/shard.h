// The seam to devices at each step: one loaded stage, one named step of a decoder block at a time.
#ifndef STRATA_WORKER_BACKEND_SHARD_H_
#define STRATA_WORKER_BACKEND_SHARD_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/status.h"
#include "worker/backend/stage.h"

namespace strata {

// The reason of an error after which the device is of no use until the process starts anew: it is
// off the bus, or an error stays with it (Backend::Health). Any call may answer it; no batch is the
// cause.
inline constexpr char kDeviceFailed[] = "DEVICE_FAILED";

// The reason of an error after which the shard is of no use: a rank of its stage is lost
// (UNAVAILABLE). Any call may answer it; no batch is the cause.
inline constexpr char kRanksBroken[] = "RANKS_BROKEN";
// Whether an error is one of these two: the step fails with it, and none of its items.
inline bool FailsTheStep(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason == kDeviceFailed || reason == kRanksBroken;
}

// What temperature 0 chooses of a row of logits (worker/sampler).
struct RowLargest {
  uint32_t token_id = 0;  // Of the largest logit; of equals the lowest.
  bool usable = false;    // All are below +inf, and one is above -inf; else the id is any.
};

// One loaded stage. A step is, by one thread:
//   Begin; Embed (and EmbedInputs) or SetResidual; for each layer: Attention or, of the model's
//   last one, AttentionOfSome; and Mlp; then ReadResidual (after any layer too), or Head and
//   ReadLogits (or ReadLargest), once or more with other rows.
// Every call but the Read...s may return before its work is done (a stream of a device, a lazy
// graph); calls take effect in order. A failed call leaves KV of the batch's own rows undefined
// and nothing else. No result depends on the batch's other rows.
class Shard {
 public:
  virtual ~Shard() = default;

  virtual absl::Status Begin(const Batch& batch) = 0;
  // Residual stream := embeddings of the batch's token ids. First stage only.
  virtual absl::Status Embed() = 0;
  // After Embed: of these rows, ascending, the residual stream := `values`, float32 [rows.size(),
  // hidden], times the model's input_embedding_scale; both are copied before it returns.
  virtual absl::Status EmbedInputs(std::span<const uint32_t> rows,
                                   std::span<const float> values) = 0;
  // Residual stream := `values`, float32 [rows, hidden], copied before it returns.
  virtual absl::Status SetResidual(std::span<const float> values) = 0;
  // The layer's attention branch (see LayerSpec), added to the residual stream, appending K and V
  // of the rows to the pages. `layer` is the model's index.
  virtual absl::Status Attention(uint32_t layer) = 0;
  // Instead of it where only these rows (ascending, of each item one behind another) are needed any
  // more, as only they have logits: K and V of all rows are appended, but the branch is added to
  // these, which are the batch's only rows from then on, counted from 0. There may be none. `rows`
  // is copied before it returns. Last layer of the last stage only.
  virtual absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) = 0;
  // The layer's other branch, added likewise.
  virtual absl::Status Mlp(uint32_t layer) = 0;
  // Waits, where the batch has no rows too, and copies the residual stream, float32 [rows, hidden].
  virtual absl::Status ReadResidual(std::span<float> out) = 0;
  // Final norm and head of these rows (ascending). Last stage only.
  virtual absl::Status Head(std::span<const uint32_t> rows) = 0;
  // Waits, and copies the logits, float32 [rows of Head, vocab].
  virtual absl::Status ReadLogits(std::span<float> out) = 0;

  // Whether ReadLargest may follow on Head in place of ReadLogits: the device chooses, so that
  // logits need not leave it.
  virtual bool FindsLargest() const { return false; }
  // Waits, and says of each row of Head what is largest; only where FindsLargest.
  virtual absl::Status ReadLargest(std::span<RowLargest> /*out*/) {
    return absl::InternalError("this backend leaves the choice to who reads its logits");
  }

  // Copies a page of all the group's layers, between steps: copy-on-write of shared pages.
  virtual absl::Status CopyPage(uint32_t group, PageId from, PageId to) = 0;

  // Bytes of a page of all the group's layers, as the next two have them: the same for every stage
  // of these layers and this numerics class. 0: no layer has the group, or this backend gives no
  // pages away.
  virtual uint64_t PageBytes(uint32_t /*group*/) const { return 0; }
  // Waits, and copies a page out, or in, between steps. `out` and `in` have PageBytes.
  virtual absl::Status ReadPage(uint32_t /*group*/, PageId /*page*/, std::span<uint8_t> /*out*/) {
    return absl::InternalError("this backend gives no pages away");
  }
  virtual absl::Status WritePage(uint32_t /*group*/, PageId /*page*/,
                                 std::span<const uint8_t> /*in*/) {
    return absl::InternalError("this backend takes no pages over");
  }

  // Before the first step of an epoch, between steps; may wait. UNAVAILABLE (kRanksBroken)
  // where another rank of the stage is not there.
  virtual absl::Status BeginEpoch(uint64_t /*epoch*/) { return absl::OkStatus(); }
  // Behind it: whether KV was lost since this was last asked. All of it is undefined where ranks of
  // other workers were joined anew, as a call that the first rank has made may not have come to
  // another.
  virtual bool TakeKvLost() { return false; }

  // Whether calls may wait for another worker, for longer than they compute.
  virtual bool WaitsForWorkers() const { return false; }
  // Whether a call does so now, and for a while already; each such wait ends by itself. Any thread.
  virtual bool IsHeldUp() const { return false; }

  // Gives up all KV and has these pages by KV group from now on, between steps. RESOURCE_EXHAUSTED
  // when memory is short: then no page is left, and it may be called again.
  virtual absl::Status ResizeKv(std::span<const uint64_t> pages) = 0;

  // Bytes held: weights, KV, scratch.
  virtual uint64_t MemoryBytes() const = 0;

  // Bytes of weights that a step of one row reads, KV aside.
  virtual uint64_t StepReadBytes() const = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_SHARD_H_
