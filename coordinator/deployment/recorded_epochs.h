// Which epochs of a deployment may be used: those that a record in the state store covers, so that
// no later process uses one again. A record is far ahead of the epochs in use, so that no fence
// waits for a disk.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_RECORDED_EPOCHS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_RECORDED_EPOCHS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace strata {

// Epochs of deployments that a process takes up from the store are of its term: terms are durable
// whatever the store can write, so no earlier process has used them. `stored`: the record's.
uint64_t FirstEpochOfTerm(uint64_t term, uint64_t stored);
uint64_t LastEpochOfTerm(uint64_t term);

// A core: one thread. Nothing waits.
class RecordedEpochs {
 public:
  // `record_later` asks for a record of the deployment, soon; OnRecorded tells how it went.
  RecordedEpochs(std::string model, std::function<void()> record_later)
      : model_(std::move(model)), record_later_(std::move(record_later)) {}

  // The epoch of a record made when `next` is the next one to be used.
  static uint64_t Ahead(uint64_t next);

  // Whether `epoch` may be used. Asks for a new record when half of what the newest covers has been
  // used. UNAVAILABLE (EPOCHS_NOT_RECORDED), or why the newest record could not be stored.
  absl::Status Use(uint64_t epoch);
  // A record with this epoch is in the store; or could not be put there.
  void OnRecorded(uint64_t epoch, const absl::Status& status);
  // How many epochs from `next` on may be used.
  uint64_t Left(uint64_t next) const;

 private:
  const std::string model_;
  const std::function<void()> record_later_;
  uint64_t recorded_ = 0;   // Of the newest record in the store.
  bool recording_ = false;  // A record was asked for, and not answered yet.
  absl::Status problem_;    // Why the newest record failed.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_RECORDED_EPOCHS_H_
