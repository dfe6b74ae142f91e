// Small models for the simulation of ranks, and a step of them on one rank or over several.
#ifndef STRATA_TESTS_SIM_RANKS_RANKED_MODEL_H_
#define STRATA_TESTS_SIM_RANKS_RANKED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/shard.h"

namespace strata::sim {

// What is loaded for many seeds: it holds no state but KV, which each step names by position.
struct RankedModel {
  explicit RankedModel(const strata::testing::MadeUpShape& shape)
      : model(shape), stage(WholeModel(model)) {}

  strata::testing::MadeUpModel model;
  strata::testing::MadeUpStage stage;
};

inline constexpr uint32_t kRankedModels = 3;
// By number, below kRankedModels.
const RankedModel& RankedModelOf(uint32_t which);

struct RankedSequence {
  std::vector<uint32_t> ids;
  std::vector<PageId> pages;
  uint32_t computed = 0;
  uint32_t left = 0;  // Tokens still to make.
};

// Rows of one sequence that a step computes.
struct RankedItem {
  size_t sequence;
  uint32_t position;
  uint32_t rows;
};

// The logits of each item's last row, or what the first call that failed answered.
absl::StatusOr<std::vector<float>> ComputeStep(Shard* shard, const StageSpec& spec,
                                               std::span<const RankedSequence> sequences,
                                               std::span<const RankedItem> items);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANKS_RANKED_MODEL_H_
