// How the queries of a batch are divided among threads.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ATTENDER_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ATTENDER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// All queries of the batch's rows, and where what they attend goes.
struct QueryRows {
  const float* q = nullptr;  // [rows][q_stride]
  size_t q_stride = 0;
  float* out = nullptr;  // [rows][out_stride]
  size_t out_stride = 0;
};

// Owns each thread's scratch, and partial sums over spans of keys.
class Attender {
 public:
  explicit Attender(const StageState& stage) : stage_(stage) {}
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const { return scratch_.bytes() + partial_.bytes(); }

  // Of the layer, where no row's keys and values are to be appended any more.
  void Attend(uint32_t layer, const QueryRows& rows);
  // Where every item has one row and SplitsSpans is false: append(row, part) is called by the
  // thread that attends a part of the row's heads, just before it does.
  void AppendAndAttend(uint32_t layer, const QueryRows& rows,
                       absl::FunctionRef<void(uint32_t row, uint32_t part)> append);
  // Whether one sequence's attention is divided among threads by spans of keys.
  bool SplitsSpans(uint32_t layer) const;
  // A thread's own, sizes.attend floats, for as long as nothing is attended.
  float* scratch(uint32_t thread) { return scratch_.as<float>() + thread * stage_.sizes.attend; }

 private:
  // The attention of `rows` rows of an item from its row `first`, of the part'th heads that are
  // computed as one (HeadsAtOnce).
  AttendArgs Tile(uint32_t layer, const QueryRows& queries, const BatchItem& item, uint32_t first,
                  uint32_t rows, uint32_t part) const;
  void AttendBySpans(uint32_t layer, const QueryRows& rows);
  // Of the layer's KV group; 0 where every key is seen.
  uint32_t WindowOf(uint32_t layer) const {
    return stage_.spec.model.kv_groups[stage_.layer(layer).attention.kv_group].window;
  }

  const StageState& stage_;
  AlignedBuffer scratch_;                    // [threads][sizes.attend]
  AlignedBuffer partial_;                    // [items][query heads][spans][PartialFloats]
  std::vector<uint32_t> tile_ends_;          // Of each item, counted over the items before it too.
  std::vector<PrefetchedPages> prefetched_;  // By thread: of the attention's units in turn.
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ATTENDER_H_
