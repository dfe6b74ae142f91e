// The rows of a batch by the experts that compute them.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_EXPERT_ROWS_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_EXPERT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/shard/router.h"

namespace strata::cpu {

// Each row of the batch has one place for each of its experts; places are ordered by expert, then
// by row. Not thread-safe, but different rows may be chosen for by different threads.
class ExpertRows {
 public:
  // The rows of one expert: places [first, first + count).
  struct Group {
    uint32_t expert = 0;
    uint32_t first = 0;
    uint32_t count = 0;
  };
  // Rows that are packed as one: a part of a group, by place.
  struct Block {
    uint32_t expert = 0;
    RowBlock rows;
  };

  // Room for `rows` rows of `used` out of `experts` experts: nothing is allocated after it.
  void Reserve(size_t rows, size_t used, size_t experts);
  uint64_t bytes() const;

  // Of `rows` rows: Begin, then fill in Choice for each, then Arrange.
  void Begin(uint32_t rows, uint32_t used);
  std::span<Chosen> Choice(uint32_t row) {
    return std::span(chosen_).subspan(size_t{row} * used_, used_);
  }
  void Arrange(uint32_t experts, BlockRows block_rows);

  // After Arrange. Experts without rows are not among the groups, which ascend.
  std::span<const Group> groups() const { return groups_; }
  std::span<const Block> blocks() const { return blocks_; }
  // The batch's row at a place, and the places of a row, as Choice has its experts.
  uint32_t RowAt(uint32_t place) const { return row_at_[place]; }
  std::span<const uint32_t> Places(uint32_t row) const {
    return std::span(places_).subspan(size_t{row} * used_, used_);
  }

 private:
  uint32_t rows_ = 0;
  uint32_t used_ = 0;
  std::vector<Chosen> chosen_;    // [rows][used]
  std::vector<uint32_t> places_;  // [rows][used]
  std::vector<uint32_t> row_at_;  // [rows * used]
  std::vector<uint32_t> next_;    // By expert: its next free place.
  std::vector<Group> groups_;
  std::vector<Block> blocks_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_EXPERT_ROWS_H_
