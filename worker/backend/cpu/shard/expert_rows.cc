#include "worker/backend/cpu/shard/expert_rows.h"

#include <algorithm>

namespace strata::cpu {

void ExpertRows::Reserve(size_t rows, size_t used, size_t experts) {
  const size_t places = rows * used;
  chosen_.resize(places);
  places_.resize(places);
  row_at_.resize(places);
  next_.resize(experts);
  groups_.reserve(std::min(experts, places));
  blocks_.reserve(places);
}

uint64_t ExpertRows::bytes() const {
  return chosen_.size() * sizeof(Chosen) +
         (places_.size() + row_at_.size() + next_.size()) * sizeof(uint32_t) +
         groups_.capacity() * sizeof(Group) + blocks_.capacity() * sizeof(Block);
}

void ExpertRows::Begin(uint32_t rows, uint32_t used) {
  rows_ = rows;
  used_ = used;
}

void ExpertRows::Arrange(uint32_t experts, BlockRows block_rows) {
  const size_t places = size_t{rows_} * used_;
  std::fill_n(next_.begin(), experts, 0);
  for (size_t i = 0; i < places; ++i) {
    ++next_[chosen_[i].expert];
  }
  groups_.clear();
  blocks_.clear();
  uint32_t first = 0;
  for (uint32_t expert = 0; expert < experts; ++expert) {
    const uint32_t count = next_[expert];
    next_[expert] = first;
    if (count == 0) {
      continue;
    }
    groups_.push_back({expert, first, count});
    const uint32_t blocks = RowBlocks(count, block_rows);
    for (uint32_t b = 0; b < blocks; ++b) {
      RowBlock rows = RowBlockAt(count, blocks, b);
      rows.first += first;
      blocks_.push_back({expert, rows});
    }
    first += count;
  }
  for (size_t i = 0; i < places; ++i) {
    places_[i] = next_[chosen_[i].expert]++;
    row_at_[places_[i]] = static_cast<uint32_t>(i / used_);
  }
}

}  // namespace strata::cpu
