// Fork, Truncate and Release on one stage's sequences.
#ifndef STRATA_WORKER_RUNNER_COMMAND_RUNNER_H_
#define STRATA_WORKER_RUNNER_COMMAND_RUNNER_H_

#include "absl/status/status.h"
#include "common/model_spec.h"
#include "strata/v1/shard.pb.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// Runs one command of `step`. After an error nothing was changed. In a `resync` frame a truncation
// says what is committed.
absl::Status RunCommand(const v1::StepCommand& command, const ModelSpec& model, uint64_t step,
                        bool resync, SequenceTable* table);

// Errors of the step rule, shared by items and commands; each has the values that were compared.
absl::Status SequenceNotFound(const v1::SequenceName& name);
absl::Status CheckGeneration(const v1::SequenceName& name, const SequenceTable& table);
// FAILED_PRECONDITION (POSITION_MISMATCH) if `matches` is false, and as CheckFingerprint for the
// fingerprint held at `length`.
absl::Status CheckState(const Sequence& sequence, const SequenceTable& table, bool matches,
                        uint32_t length, Fingerprint fingerprint);
// FAILED_PRECONDITION (FINGERPRINT_MISMATCH) unless the named one is the one held before
// `position`.
absl::Status CheckFingerprint(const v1::SequenceName& name, uint32_t position, Fingerprint named,
                              Fingerprint held);

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_COMMAND_RUNNER_H_
