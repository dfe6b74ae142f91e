// When a model whose load failed is loaded again by itself: after a delay that grows, and only
// where the cause may have gone by then. A core: time is handed in, one thread.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_LOAD_RETRY_H_
#define STRATA_COORDINATOR_DEPLOYMENT_LOAD_RETRY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "common/clock.h"

namespace strata {

// Whether what made a load fail may go without anybody loading the model anew: a full disk, a
// network, files that are put back; not a checkpoint or option that a worker refuses.
bool MayGoByItself(const absl::Status& why);

struct LoadRetryOptions {
  nanoseconds first = std::chrono::seconds(5);  // After the first failure; 0: never again.
  nanoseconds most = std::chrono::minutes(5);   // Each delay is twice the one before, up to this.
};

class LoadRetry {
 public:
  explicit LoadRetry(LoadRetryOptions options) : options_(options) {}

  // A load failed; `may_go`: what made it fail may go by itself.
  void Failed(const absl::Status& why, bool may_go, TimePoint now);
  // Another one begins; the failures stay counted.
  void Begin() { due_.reset(); }
  // The model is ready.
  void Forget();

  // When the next load is to begin; nullopt: not by itself.
  std::optional<TimePoint> due() const { return due_; }
  // Loads that failed in a row, and why the newest did.
  uint32_t failed() const { return failed_; }
  const absl::Status& cause() const { return cause_; }

 private:
  const LoadRetryOptions options_;
  std::optional<TimePoint> due_;
  uint32_t failed_ = 0;
  absl::Status cause_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_LOAD_RETRY_H_
