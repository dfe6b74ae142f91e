// One rank of a stage whose other ranks are elsewhere.
#ifndef STRATA_WORKER_BACKEND_RANK_SHARD_H_
#define STRATA_WORKER_BACKEND_RANK_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/rank_outputs.h"
#include "worker/backend/shard.h"
#include "worker/backend/shard_calls.h"
#include "worker/collective/collective.h"

namespace strata {

// Which rank it is, and what each has of the outputs.
struct RankPlace {
  std::vector<OutputRange> shares;  // SharesByWeight's; at least two.
  uint32_t rank = 0;
};

// All ranks are called alike, each by a thread of its own, and wait for one another within calls.
// Three things are another rank's than the first: it does not embed or set the residual stream,
// its logits are its own columns alone, and so are its pages of KV.
class RankShard : public Shard {
 public:
  // Before the first Begin, and after an error. Of the collective a call reads what it is given
  // before it returns, and nothing later (MakeChannelCollective).
  virtual void Connect(std::unique_ptr<Collective> collective, uint64_t epoch) = 0;
  // This rank gives up, and all hear of it. Any thread, but not while Connect is called.
  virtual void Abort(const absl::Status& why) = 0;
  // The calls that follow on this thread are this rank's: for ranks that share a process.
  virtual absl::Status Enter() { return absl::OkStatus(); }
  // Waits until all that was called is done, where calls return before.
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // The residual stream := the first rank's, before any other call of a step reads it.
  virtual absl::Status ShareResidual() = 0;
  // Behind ReadLogits, of what it filled in: the first rank has all columns then, of others only
  // their own count.
  virtual absl::Status GatherLogits(std::span<float> logits) = 0;
  // One row of bytes, of which each rank has written its columns.
  virtual absl::Status GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) = 0;

  // copy(rank, at, of_whole, bytes) for each piece of a page of the group that a rank has: where it
  // is in the rank's page, and in that of a stage of one rank. Some may be several ranks'.
  virtual void ForPageParts(uint32_t group,
                            const std::function<void(size_t rank, size_t at, size_t of_whole,
                                                     size_t bytes)>& copy) const = 0;

  // What is asked of calls, of any rank; and the batch that is computed.
  virtual const ShardCalls& calls() const = 0;
  virtual const Batch& batch() const = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_RANK_SHARD_H_
