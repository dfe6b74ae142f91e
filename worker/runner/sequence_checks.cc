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
  name.set_generation(sequence.generation);
  return name;
}

absl::Status SliceMismatch(const Sequence& sequence, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, "SLICE_MISMATCH",
               Show(NameOf(sequence)) + " " + what)
      .Hint("resend from 0");
}

}  // namespace

absl::Status SequenceNotFound(const v1::SequenceName& name) {
  return Error(absl::StatusCode::kNotFound, "SEQUENCE_NOT_FOUND", Show(name) + " is not held here")
      .Hint("resend from 0");
}

absl::Status CheckGeneration(const v1::SequenceName& name, const SequenceTable& table) {
  if (!step_policy::GenerationIsNew(name.generation(), table.newest_generation())) {
    return Error(absl::StatusCode::kFailedPrecondition, "STALE_GENERATION",
                 Show(name) + " is not newer than generation " +
                     std::to_string(table.newest_generation()) + ", the newest created here")
        .Hint("resend from 0 under a new generation")
        .Fact("generation", name.generation())
        .Fact("newest_generation", table.newest_generation());
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
  const std::vector<UnfinishedItem>& unfinished = sequence.unfinished;
  const auto found = std::find_if(unfinished.begin(), unfinished.end(),
                                  [&](const auto& one) { return one.position == item.position(); });
  if (found == unfinished.end() || !step_policy::SliceFollows(slice.from, found->next_layer)) {
    return SliceMismatch(sequence, "has nothing at position " + std::to_string(item.position()) +
                                       " that goes on at layer " + std::to_string(slice.from));
  }
  const auto held = sequence.ids.begin() + found->position;
  if (!std::equal(item.token_ids().begin(), item.token_ids().end(), held, held + found->rows)) {
    return SliceMismatch(
        sequence, "was begun with other tokens at position " + std::to_string(item.position()));
  }
  if (found != unfinished.begin() &&
      !step_policy::SliceStaysBehind(slice.end, found[-1].next_layer)) {
    return SliceMismatch(sequence,
                         "has not computed that many layers of the tokens before position " +
                             std::to_string(item.position()));
  }
  return CheckFingerprint(item.sequence(), item.position(), item.fingerprint(),
                          table.FingerprintAt(sequence, item.position()));
}

absl::Status CheckSliceBegins(const Sequence& sequence, const ItemSlice& slice) {
  if (!sequence.unfinished.empty() &&
      !step_policy::SliceStaysBehind(slice.end, sequence.unfinished.back().next_layer)) {
    return SliceMismatch(sequence,
                         "has not computed that many layers of the tokens before position " +
                             std::to_string(sequence.length()));
  }
  return absl::OkStatus();
}

}  // namespace strata
