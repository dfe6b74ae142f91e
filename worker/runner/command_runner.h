// Fork, Truncate and Release on one stage's sequences.
#ifndef STRATA_WORKER_RUNNER_COMMAND_RUNNER_H_
#define STRATA_WORKER_RUNNER_COMMAND_RUNNER_H_

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "strata/v1/shard.pb.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// Runs one command of `step`. After an error nothing was changed: those of sequence_checks.h, of
// CheckName and CheckParams, FAILED_PRECONDITION (WINDOW_NOT_RETAINED), UNIMPLEMENTED
// (UNKNOWN_COMMAND). In a `resync` frame a truncation says what is committed.
absl::Status RunCommand(const v1::StepCommand& command, const ModelSpec& model, uint64_t step,
                        bool resync, SequenceTable* table);

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_COMMAND_RUNNER_H_
