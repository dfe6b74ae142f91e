// The residual stream of a batch, and how a branch is added to it.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_RESIDUAL_STREAM_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_RESIDUAL_STREAM_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/shard/products.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Owns the stream, and a branch where it does not go to the stream at once.
class ResidualStream {
 public:
  ResidualStream(const StageState& stage, Products* products)
      : stage_(stage), products_(*products) {}
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const { return rows_.bytes() + branch_.bytes(); }

  float* row(size_t row) { return rows_.as<float>() + row * stage_.sizes.hidden; }
  float* branch_row(size_t row) { return branch_.as<float>() + row * stage_.sizes.branch; }
  // The batch's rows := their tokens' embeddings.
  void Embed();
  // Only these rows stay, ascending, as the first ones.
  void Keep(std::span<const uint32_t> rows);

  // Of the stream, for a branch's first products, normed by `before` if it is not empty.
  Products::Inputs BranchInputs(const LayerSpec& spec, const std::vector<float>& before,
                                Products::Users users) const;
  // Adds the last product of a branch to the stream, normed (`after`, if not empty) and multiplied
  // as the layer says; gathered from all ranks first.
  absl::Status FinishBranch(const Products::Inputs& inputs, const Linear& linear,
                            const LayerSpec& spec, const std::vector<float>& after);
  // Of each row the rank's columns of what the branch holds are gathered, and all of it is added.
  absl::Status GatherBranch(const LayerSpec& spec, const std::vector<float>& after);
  // Adds what the branch holds of one row likewise.
  void AddBranchRow(const LayerSpec& spec, const std::vector<float>& after, size_t row);

 private:
  void AddBranch(const LayerSpec& spec, const std::vector<float>& after);

  const StageState& stage_;
  Products& products_;
  AlignedBuffer rows_;    // [rows][sizes.hidden]
  AlignedBuffer branch_;  // [rows][sizes.branch]
};

// Rows that stay of [rows][width], ascending, become the first ones.
inline void KeepRowsOf(AlignedBuffer* buffer, size_t width, std::span<const uint32_t> rows) {
  float* const values = buffer->as<float>();
  for (size_t to = 0; to < rows.size(); ++to) {
    std::memmove(values + to * width, values + rows[to] * width, width * sizeof(float));
  }
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_RESIDUAL_STREAM_H_
