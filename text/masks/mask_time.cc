#include "text/masks/mask_time.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

int64_t Ms(nanoseconds time) { return std::chrono::duration_cast<milliseconds>(time).count(); }

Error TooSlow(nanoseconds time, const char* of_what) {
  return Error(
             absl::StatusCode::kInvalidArgument, "GRAMMAR_TOO_EXPENSIVE",
             absl::StrCat("finding the tokens that may come next took ", Ms(time), " ms", of_what))
      .Hint(
          "make the schema, pattern or grammar smaller, its counts lower, and the ways in which a "
          "text can be read fewer; or raise --constraint-mask-time of strata-coordinator");
}

}  // namespace

absl::Status MaskTime::Add(nanoseconds time) {
  left_ += limits_.each - time;
  if (time > limits_.one) {
    return TooSlow(time, " for one token").Limit(absl::StrCat("mask_ms=", Ms(limits_.one)));
  }
  if (left_.count() < 0) {
    return TooSlow(limits_.all - left_, ", more than so many tokens may take")
        .Limit(absl::StrCat("answer_mask_ms=", Ms(limits_.all), "+", Ms(limits_.each), "/token"));
  }
  return absl::OkStatus();
}

nanoseconds ThreadTime() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

}  // namespace strata
