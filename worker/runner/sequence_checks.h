// The step rule: whether a sequence is the one that an item or a command means. Each error has the
// values that were compared.
#ifndef STRATA_WORKER_RUNNER_SEQUENCE_CHECKS_H_
#define STRATA_WORKER_RUNNER_SEQUENCE_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/fingerprint.h"
#include "strata/v1/shard.pb.h"
#include "worker/runner/item_slice.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// NOT_FOUND (SEQUENCE_NOT_FOUND).
absl::Status SequenceNotFound(const v1::SequenceName& name);

// FAILED_PRECONDITION (STALE_GENERATION) unless the name's generation is newer than any that was
// created here.
absl::Status CheckNumberIsNew(const v1::SequenceName& name, const SequenceTable& table);

// FAILED_PRECONDITION (POSITION_MISMATCH) if `matches` is false, and as CheckFingerprint for the
// fingerprint held at `length`.
absl::Status CheckState(const Sequence& sequence, const SequenceTable& table, bool matches,
                        uint32_t length, Fingerprint fingerprint);

// FAILED_PRECONDITION (FINGERPRINT_MISMATCH) unless the named one is the one held before
// `position`.
absl::Status CheckFingerprint(const v1::SequenceName& name, uint32_t position, Fingerprint named,
                              Fingerprint held);

// Whether the item, whose first slice this step or one before it was, goes on from where it was
// left, and after what comes before it. FAILED_PRECONDITION (SLICE_MISMATCH), and as
// CheckFingerprint.
absl::Status CheckSliceFollows(const Sequence& sequence, const SequenceTable& table,
                               const v1::StepItem& item);
// Whether an item that begins with `slice` at the sequence's end stays behind what is unfinished
// there. FAILED_PRECONDITION (SLICE_MISMATCH).
absl::Status CheckSliceBegins(const Sequence& sequence, const ItemSlice& slice);

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_SEQUENCE_CHECKS_H_
