#include "coordinator/deployment/recorded_epochs.h"

#include <algorithm>

#include "common/status.h"

namespace strata {
namespace {

// Epochs that a record leaves for use before the next one. Half of them are left when that is asked
// for: a disk may be slow for as many fences.
constexpr uint64_t kEpochsAhead = 1000;

// Epochs of a term begin at it times 2^this.
constexpr unsigned kEpochTermShift = 32;

}  // namespace

uint64_t FirstEpochOfTerm(uint64_t term, uint64_t stored) {
  return std::max(stored, term << kEpochTermShift);
}

uint64_t LastEpochOfTerm(uint64_t term) { return ((term + 1) << kEpochTermShift) - 1; }

uint64_t RecordedEpochs::Ahead(uint64_t next) { return next + kEpochsAhead; }

void RecordedEpochs::OnRecorded(uint64_t epoch, const absl::Status& status) {
  recording_ = false;
  problem_ = status;
  if (status.ok()) {
    recorded_ = std::max(recorded_, epoch);
  }
}

uint64_t RecordedEpochs::Left(uint64_t next) const {
  return recorded_ - std::min(recorded_, next - 1);
}

absl::Status RecordedEpochs::Use(uint64_t epoch) {
  if (!recording_ && (!problem_.ok() || epoch + kEpochsAhead / 2 > recorded_)) {
    recording_ = true;
    record_later_();
  }
  if (epoch <= recorded_) {
    return absl::OkStatus();
  }
  return !problem_.ok()
             ? problem_
             : Error(absl::StatusCode::kUnavailable, "EPOCHS_NOT_RECORDED",
                     "model '" + model_ + "' has used all epochs up to " +
                         std::to_string(recorded_) +
                         ", and the state store has not taken a record of more yet")
                   .Limit("epochs=" + std::to_string(kEpochsAhead))
                   .Hint(
                       "see to the disk of the coordinator's --data-dir, then `strata model load " +
                       model_ + "`");
}

}  // namespace strata
