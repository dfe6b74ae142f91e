#include "worker/runner/command_runner.h"

#include <string>

#include "common/status.h"
#include "worker/runner/sequence_checks.h"
#include "worker/runner/step_checks.h"
#include "worker/runner/step_policy.h"

namespace strata {
namespace {

absl::Status CheckWindows(const Sequence& sequence, const SequenceTable& table, uint32_t length) {
  uint32_t group = 0;
  if (!table.WindowsRetained(sequence, length, &group)) {
    return Error(absl::StatusCode::kFailedPrecondition, "WINDOW_NOT_RETAINED",
                 "keys before position " + std::to_string(table.FirstRetained(sequence, group)) +
                     " of KV group " + std::to_string(group) + " were freed; a length of " +
                     std::to_string(length) + " needs them")
        .Hint("resend from 0")
        .Fact("first_retained", table.FirstRetained(sequence, group))
        .Fact("length", length)
        .Fact("group", group);
  }
  return absl::OkStatus();
}

absl::Status RunFork(const v1::ForkCommand& fork, const ModelSpec& model, uint64_t step,
                     SequenceTable* table) {
  RETURN_IF_ERROR(CheckName(fork.source()));
  RETURN_IF_ERROR(CheckName(fork.destination()));
  RETURN_IF_ERROR(CheckParams(fork.params(), model));
  const Sequence* source = table->Find(fork.source().request_id(), fork.source().generation());
  if (source == nullptr) {
    return SequenceNotFound(fork.source());
  }
  RETURN_IF_ERROR(CheckNumberIsNew(fork.destination(), *table));
  RETURN_IF_ERROR(CheckState(*source, *table,
                             step_policy::LengthIsHeld(fork.length(), source->computed_length()),
                             fork.length(), fork.fingerprint()));
  if (fork.params().rotary_variant() != source->params.rotary_variant()) {
    return Error(absl::StatusCode::kInvalidArgument, "ROTARY_VARIANT",
                 "a fork's keys are rotated as its source's are");
  }
  RETURN_IF_ERROR(CheckWindows(*source, *table, fork.length()));
  Sequence* destination =
      table->Fork(*source, fork.destination().request_id(), fork.destination().generation(),
                  fork.length(), fork.params());
  table->NoteStep(destination, step, destination->length());
  return absl::OkStatus();
}

absl::Status RunTruncate(const v1::TruncateCommand& truncate, bool resync, SequenceTable* table) {
  RETURN_IF_ERROR(CheckName(truncate.sequence()));
  Sequence* sequence =
      table->Find(truncate.sequence().request_id(), truncate.sequence().generation());
  if (sequence == nullptr) {
    return SequenceNotFound(truncate.sequence());
  }
  RETURN_IF_ERROR(CheckState(
      *sequence, *table, step_policy::LengthIsHeld(truncate.length(), sequence->computed_length()),
      truncate.length(), truncate.fingerprint()));
  RETURN_IF_ERROR(CheckWindows(*sequence, *table, truncate.length()));
  table->Truncate(sequence, truncate.length());
  if (resync) {
    table->CommitAll(sequence);
  }
  return absl::OkStatus();
}

absl::Status RunRelease(const v1::ReleaseCommand& release, SequenceTable* table) {
  RETURN_IF_ERROR(CheckName(release.sequence()));
  Sequence* sequence =
      table->Find(release.sequence().request_id(), release.sequence().generation());
  if (sequence == nullptr) {
    return SequenceNotFound(release.sequence());
  }
  table->Release(sequence);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCommand(const v1::StepCommand& command, const ModelSpec& model, uint64_t step,
                        bool resync, SequenceTable* table) {
  switch (command.kind_case()) {
    case v1::StepCommand::kFork:
      return RunFork(command.fork(), model, step, table);
    case v1::StepCommand::kTruncate:
      return RunTruncate(command.truncate(), resync, table);
    case v1::StepCommand::kRelease:
      return RunRelease(command.release(), table);
    case v1::StepCommand::KIND_NOT_SET:
      break;
  }
  return Error(absl::StatusCode::kUnimplemented, "UNKNOWN_COMMAND",
               "a command is of no kind that is known here");
}

}  // namespace strata
