#include "worker/runner/sequence_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "worker/runner/step_policy.h"

namespace strata {
namespace {

std::string Show(const v1::SequenceName& name) {
  return "sequence " + name.request_id() + " generation " + std::to_string(name.generation());
}

std::string Hex(Fingerprint fingerprint) { return absl::StrFormat("%016x", fingerprint); }

v1::SequenceName NameOf(const Sequence& sequence) {
  v1::SequenceName name;
  name.set_request_id(sequence.request_id);
  name.set_generation(sequence.number);
  return name;
}

absl::Status SliceMismatch(const Sequence& sequence, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, "SLICE_MISMATCH",
               Show(NameOf(sequence)) + " " + what)
      .Hint("resend from 0");
}

// Of a slice of the unfinished item `item`, which may be the one after the last: whether it ends
// where the tokens before are computed.
absl::Status CheckStaysBehind(const Sequence& sequence, const UnfinishedItem* item, uint32_t end) {
  if (item == sequence.unfinished.data() ||
      step_policy::SliceStaysBehind(end, item[-1].next_layer)) {
    return absl::OkStatus();
  }
  return SliceMismatch(sequence,
                       "has not computed that many layers of the tokens before position " +
                           std::to_string(item[-1].position + item[-1].rows));
}

}  // namespace

absl::Status SequenceNotFound(const v1::SequenceName& name) {
  return Error(absl::StatusCode::kNotFound, "SEQUENCE_NOT_FOUND", Show(name) + " is not held here")
      .Hint("resend from 0");
}

absl::Status CheckNumberIsNew(const v1::SequenceName& name, const SequenceTable& table) {
  if (!step_policy::NumberIsNew(name.generation(), table.newest_number())) {
    return Error(absl::StatusCode::kFailedPrecondition, "STALE_GENERATION",
                 Show(name) + " is not newer than generation " +
                     std::to_string(table.newest_number()) + ", the newest created here")
        .Hint("resend from 0 under a new generation")
        .Fact("generation", name.generation())
        .Fact("newest_generation", table.newest_number());
  }
  return absl::OkStatus();
}

absl::Status CheckState(const Sequence& sequence, const SequenceTable& table, bool matches,
                        uint32_t length, Fingerprint fingerprint) {
  const v1::SequenceName name = NameOf(sequence);
  if (!matches) {
    return Error(absl::StatusCode::kFailedPrecondition, "POSITION_MISMATCH",
                 Show(name) + " has " + std::to_string(sequence.length()) +
                     " tokens here, position " + std::to_string(length) + " was named")
        .Hint("resend from 0")
        .Fact("position", length)
        .Fact("length", sequence.length())
        .Fact("fingerprint", Hex(fingerprint))
        .Fact("held_fingerprint", Hex(sequence.fingerprint));
  }
  return CheckFingerprint(name, length, fingerprint, table.FingerprintAt(sequence, length));
}

absl::Status CheckFingerprint(const v1::SequenceName& name, uint32_t position, Fingerprint named,
                              Fingerprint held) {
  if (!step_policy::FingerprintMatches(named, held)) {
    return Error(
               absl::StatusCode::kFailedPrecondition, "FINGERPRINT_MISMATCH",
               Show(name) + " holds other tokens here before position " + std::to_string(position))
        .Hint("resend from 0")
        .Fact("position", position)
        .Fact("fingerprint", Hex(named))
        .Fact("held_fingerprint", Hex(held));
  }
  return absl::OkStatus();
}

absl::Status CheckSliceFollows(const Sequence& sequence, const SequenceTable& table,
                               const v1::StepItem& item) {
  const ItemSlice slice = SliceOf(item);
  const UnfinishedItem* const found = sequence.FindUnfinished(item.position());
  if (found == nullptr || !step_policy::SliceFollows(slice.from, found->next_layer)) {
    return SliceMismatch(sequence, "has nothing at position " + std::to_string(item.position()) +
                                       " that goes on at layer " + std::to_string(slice.from));
  }
  const auto held = sequence.ids.begin() + found->position;
  if (!std::equal(item.token_ids().begin(), item.token_ids().end(), held, held + found->rows)) {
    return SliceMismatch(
        sequence, "was begun with other tokens at position " + std::to_string(item.position()));
  }
  RETURN_IF_ERROR(CheckStaysBehind(sequence, found, slice.end));
  return CheckFingerprint(item.sequence(), item.position(), item.fingerprint(),
                          table.FingerprintAt(sequence, item.position()));
}

absl::Status CheckSliceBegins(const Sequence& sequence, const ItemSlice& slice) {
  const std::vector<UnfinishedItem>& unfinished = sequence.unfinished;
  return CheckStaysBehind(sequence, unfinished.data() + unfinished.size(), slice.end);
}

}  // namespace strata
