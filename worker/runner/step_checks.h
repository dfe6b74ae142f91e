// Checks of frames, items and commands that need no sequence: shapes, ranges, and what is not
// implemented. All come before any change of state.
#ifndef STRATA_WORKER_RUNNER_STEP_CHECKS_H_
#define STRATA_WORKER_RUNNER_STEP_CHECKS_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/frame.h"
#include "worker/backend/stage.h"

namespace strata {

// Commands that one frame may have: a resync names every sequence.
inline constexpr int kMaxStepCommands = 1 << 16;

// The frame as a whole: stages before this one, rows, payload, limits. An error breaks the link.
absl::Status CheckFrame(const StepMessage& frame, const StageSpec& spec, uint32_t stage);

// 1..128 printable ASCII characters and a generation above 0; else INVALID_ARGUMENT
// (SEQUENCE_NAME).
absl::Status CheckName(const v1::SequenceName& name);

// What a sequence is created with. UNIMPLEMENTED names what is not there yet.
absl::Status CheckParams(const v1::SequenceParams& params, const ModelSpec& model);

// One item by itself. `activations` are its rows; empty at the first stage.
absl::Status CheckItem(const v1::StepItem& item, std::span<const float> activations,
                       const StageSpec& spec);

// Whether a token is sampled behind this row of an item that is known to be well-formed, or may be:
// behind the last one, and behind each from the one before the first drafted token on.
bool Samples(const v1::StepItem& item, uint32_t row);
// Logits rows that an item wants in the result's payload, once it is known to be well-formed.
uint32_t LogitsRows(const v1::StepItem& item);
// What rows_wanted asks for.
bool WantsLogits(const v1::StepItem& item);
bool WantsLogprobs(const v1::StepItem& item);

// Whether all are finite.
bool AllFinite(std::span<const float> values);

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_STEP_CHECKS_H_
