// How large the buffers of a stage's steps are.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_SCRATCH_SIZES_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_SCRATCH_SIZES_H_

#include <cstddef>
#include <cstdint>

#include "common/model/row_widths.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/stage.h"

namespace strata::cpu {

// The most items of one row each whose attention may be divided among threads by spans, where a
// layer attends by `parts` of its heads: more of them are enough to divide by.
constexpr size_t MostItemsBySpans(uint32_t threads, size_t parts) {
  return threads == 1 ? 0 : (size_t{4} * threads - 1) / parts;
}

// Sizes of a stage's buffers, in floats.
struct ScratchSizes : RowWidths {
  // `attended`: the widest row that leaves attention, where the spec's heads are not all that there
  // are.
  ScratchSizes(const StageSpec& spec, const Kernels& kernels, uint32_t threads,
               size_t attended = 0);
  uint64_t Bytes() const;
  // Of all rows, and behind them of each thread but the first its own.
  size_t Normed() const { return (rows + (threads - 1) * own_rows) * hidden; }
  size_t Int8() const { return rows * int8 + (threads - 1) * own_rows * own_int8; }
  // Of each row: the inputs of a matrix, or of all experts of the row, as floats and quantized
  // (bytes); and what is between the matrices of the MLP, likewise.
  size_t packed = 0;
  size_t int8 = 0;
  // Bytes of a quantized row that a thread packs for itself, which is of one matrix and not of the
  // MLP's last; and of gate times up, which is.
  size_t own_int8 = 0;
  size_t gated = 0;
  size_t within = 0;
  size_t attend = 0;   // Of one thread.
  size_t partial = 0;  // Spans that are computed apart, of MostItemsBySpans.
  size_t rows = 0;
  size_t own_rows = 0;    // The most that each thread packs for itself, at most kOwnRows.
  size_t gated_rows = 0;  // The most of one block.
  size_t threads = 0;
  size_t rotary = 0;
  size_t attended = 0;  // A row that leaves attention, of the heads of all ranks.
  size_t branch = 0;    // A row of a branch, where it does not go to the residual stream at once.
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_SCRATCH_SIZES_H_
