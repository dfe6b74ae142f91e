// The oracle: one worker that holds all layers, as arithmetic over a token list. No engine, frame,
// runner or page table takes part.
#ifndef STRATA_TESTS_SIM_EXACT_MODEL_H_
#define STRATA_TESTS_SIM_EXACT_MODEL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "strata/v1/shard.pb.h"
#include "tests/coordinator/engine/scripted_constraint.h"

namespace strata::sim {

// Layers of hashes over full attention, as tests/worker/runner/hash_shard.h computes them on pages.
ModelSpec ExactModelSpec(uint32_t layers);

// The first `count` tokens that a request must be answered with, held to `held` if there is one.
std::vector<uint32_t> ExactAnswer(const ModelSpec& model, std::span<const uint32_t> prompt,
                                  const v1::SequenceParams& params, size_t count,
                                  const std::optional<ConstraintScript>& held = std::nullopt);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_EXACT_MODEL_H_
