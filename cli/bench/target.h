// What a load is sent to.
#ifndef STRATA_CLI_BENCH_TARGET_H_
#define STRATA_CLI_BENCH_TARGET_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cli/bench/workload.h"
#include "common/clock.h"

namespace strata::cli {

// How one request ended.
struct RequestEnd {
  absl::Status status;
  // There was no room for it, or the key's limits are reached: it may be sent again later.
  bool refused = false;
  // As the other side counted them; 0: it did not say.
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  uint32_t cached_tokens = 0;
  std::string numerics_class;
};

class LoadObserver {
 public:
  virtual ~LoadObserver() = default;
  // `at`: when they were received. `tokens` > 0.
  virtual void OnTokens(uint32_t request, TimePoint at, uint32_t tokens) = 0;
  // More of its answer; empty ones may come too.
  virtual void OnText(uint32_t request, std::string_view text) = 0;
  // Once for each request that was started.
  virtual void OnEnd(uint32_t request, TimePoint at, const RequestEnd& end) = 0;
};

// One thread; requests in flight hold none.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  virtual void Start(uint32_t request, const WorkloadRequest& what) = 0;
  // Reports what happened, on this thread, and returns at `until` or once it has reported
  // something.
  virtual void Poll(TimePoint until, LoadObserver* observer) = 0;
  // Those in flight end soon, as failed.
  virtual void CancelAll() = 0;
};

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_TARGET_H_
