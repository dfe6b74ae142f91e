// What attention's steps hand each other of a batch's rows.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ATTENTION_ROWS_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ATTENTION_ROWS_H_

#include "absl/status/status.h"
#include "worker/backend/cpu/shard/scratch_sizes.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Rows of the rank's heads' queries, keys and values, and of what all ranks attended. With latent
// vectors `k` has what is kept.
struct AttentionRows {
  // Once.
  absl::Status Allocate(const ScratchSizes& sizes) {
    const size_t row = sizes.rows * sizeof(float);
    RETURN_IF_ERROR(q.Allocate(row * sizes.queries, "buffers"));
    RETURN_IF_ERROR(k.Allocate(row * sizes.keys, "buffers"));
    RETURN_IF_ERROR(v.Allocate(row * sizes.values, "buffers"));
    return attended.Allocate(row * sizes.attended, "buffers");
  }
  uint64_t bytes() const { return q.bytes() + k.bytes() + v.bytes() + attended.bytes(); }

  AlignedBuffer q;         // [rows][sizes.queries]
  AlignedBuffer k;         // [rows][sizes.keys]
  AlignedBuffer v;         // [rows][sizes.values]
  AlignedBuffer attended;  // [rows][sizes.attended]
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ATTENTION_ROWS_H_
