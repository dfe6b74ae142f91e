#include "coordinator/deployment/load_retry.h"

#include <algorithm>

#include "common/status.h"

namespace strata {
namespace {

constexpr uint32_t kMostDoublings = 30;

}  // namespace

bool MayGoByItself(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
      return false;
    case absl::StatusCode::kFailedPrecondition:
      // The files may be put back; the rest is refused for what it is.
      return ReasonOf(why) == "MODEL_CHANGED";
    default:
      return true;
  }
}

void LoadRetry::Failed(const absl::Status& why, bool may_go, TimePoint now) {
  ++failed_;
  cause_ = why;
  due_.reset();
  if (options_.first <= nanoseconds(0) || !may_go) {
    return;
  }
  nanoseconds delay = options_.first;
  for (uint32_t i = 1; i < std::min(failed_, kMostDoublings) && delay < options_.most; ++i) {
    delay *= 2;
  }
  due_ = now + std::min(delay, std::max(options_.most, options_.first));
}

void LoadRetry::Forget() {
  due_.reset();
  failed_ = 0;
  cause_ = absl::OkStatus();
}

}  // namespace strata
