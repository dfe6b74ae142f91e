#include "worker/runner/step_computer.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/model/row_digest.h"
#include "common/status.h"
#include "worker/runner/step_checks.h"

namespace strata {
namespace {

// A backend that failed at so many runs alone, and computed none of the step, is not asked for the
// others any more: it is the device that fails, not a request.
constexpr size_t kMostFailedAlone = 4;

absl::Status NonFiniteActivations() {
  return Error(absl::StatusCode::kInternal, "NON_FINITE",
               "the activations that the stage computed are not finite");
}

absl::Status BackendFailed(const absl::Status& status) {
  return Error(absl::StatusCode::kInternal, "BACKEND_FAILED",
               absl::StrCat("the backend failed: ", status.message()));
}

// How many of the runs, from the first on, are of one slice and of different sequences: those are
// computed at once.
size_t RunsOfOneSlice(std::span<const ItemRun> runs) {
  std::set<const Sequence*> sequences;
  size_t count = 0;
  while (count < runs.size() && runs[count].slice == runs.front().slice &&
         sequences.insert(runs[count].sequence).second) {
    ++count;
  }
  return count;
}

}  // namespace

absl::Status StepComputer::Compute(StepMessage* frame, std::span<ItemRun> runs) {
  if (spec_.heads) {
    result_.Begin(frame->header.items_size());
  }
  failed_alone_ = 0;
  any_computed_ = false;
  device_ = absl::OkStatus();
  for (std::span<ItemRun> rest = runs; !rest.empty() && device_.ok();) {
    const size_t count = RunsOfOneSlice(rest);
    if (stage_.Has(rest.front().slice)) {
      ComputeOrSplit(frame, rest.first(count), 0);
    }
    rest = rest.subspan(count);
  }
  for (ItemRun& run : runs) {
    if (!device_.ok()) {
      run.status = device_;
    }
  }
  return device_;
}

// Other rows of a batch change no result, so what is computed again comes out as it would have.
void StepComputer::ComputeOrSplit(StepMessage* frame, std::span<ItemRun> runs, int tried) {
  const bool dead = failed_alone_ >= kMostFailedAlone && !any_computed_;
  const absl::Status status = dead ? last_failure_ : ComputeOnce(frame, runs);
  if (status.ok()) {
    any_computed_ = true;
    return;
  }
  last_failure_ = status;
  if (FailsTheStep(status)) {
    device_ = status;
    return;
  }
  // What was read before it failed is not to be believed either.
  for (ItemRun& run : runs) {
    run.status = BackendFailed(status);
    if (spec_.heads) {
      result_.Drop(run.index);
    }
  }
  if (dead || (runs.size() == 1 && tried > 0)) {
    failed_alone_ += dead ? 0 : 1;
    return;
  }
  on_backend_failure_();
  if (runs.size() == 1) {
    ComputeOrSplit(frame, runs, 1);
    return;
  }
  const size_t half = (runs.size() + 1) / 2;
  ComputeOrSplit(frame, runs.first(half), 0);
  if (device_.ok()) {
    ComputeOrSplit(frame, runs.subspan(half), 0);
  }
}

absl::Status StepComputer::ComputeOnce(StepMessage* frame, std::span<ItemRun> runs) {
  for (ItemRun& run : runs) {
    run.status = absl::OkStatus();
  }
  // Not before: where what a sequence keeps lies may change while items are accepted.
  for (ItemRun& run : runs) {
    if (stage_.Kept(run.slice)) {
      run.input = run.sequence->UnfinishedAt(run.old_length)->parked;
    }
  }
  RETURN_IF_ERROR(compute_.Forward(frame->header, table_, runs));
  return compute_.ToTheHead(runs.front().slice) ? ComputeLogits(frame->header, runs)
                                                : ComputeHidden(frame, runs);
}

absl::Status StepComputer::ComputeHidden(StepMessage* frame, std::span<ItemRun> runs) {
  return compute_.ReadResidual(runs, [&](ItemRun& run, std::span<const float> values) {
    if (!AllFinite(values)) {
      run.status = NonFiniteActivations();
      return;
    }
    if (stage_.Keeps(run.slice)) {
      run.parked.assign(values.begin(), values.end());
      return;
    }
    std::copy(values.begin(), values.end(),
              frame->payload.begin() +
                  static_cast<ptrdiff_t>(size_t{run.payload_row} * spec_.model.hidden));
  });
}

absl::Status StepComputer::ComputeLogits(const v1::StepFrame& frame, std::span<ItemRun> runs) {
  for (ItemRun& run : runs) {
    if (frame.items(run.index).digest_layers()) {
      run.digests.emplace_back().set_layer(spec_.last_layer + 1);
    }
  }
  if (!compute_.logits_wanted()) {
    RETURN_IF_ERROR(compute_.ReadResidual(runs, [](ItemRun& run, std::span<const float> values) {
      if (!AllFinite(values)) {
        run.status = NonFiniteActivations();
      }
    }));
    return compute_.AppendLast();
  }
  // Rows that nobody wants are not looked at here: every later row of the sequence sees their keys
  // and values, so that what is not finite in them shows in the first logits that are wanted.
  RETURN_IF_ERROR(compute_.ReadLargest(
      [&](const ItemRun& run, uint32_t row) {
        return result_.WantsOnlyLargest(frame.items(run.index), *run.sequence, row);
      },
      [&](const ItemRun& run, uint32_t row, uint32_t token_id) {
        result_.AddLargest(run.index, frame.items(run.index), row, token_id);
      }));
  return compute_.ReadLogits([&](ItemRun& run, uint32_t row, std::span<const float> logits) {
    if (frame.items(run.index).digest_layers()) {
      run.digests.back().add_rows(RowDigest(logits));
    }
    if (run.status.ok()) {
      run.status = result_.AddRow(run.index, frame.items(run.index), *run.sequence, row, logits);
      if (!run.status.ok()) {
        result_.Drop(run.index);
      }
    }
  });
}

}  // namespace strata
