#include "coordinator/http/http_memory.h"

#include <string>

#include "common/status.h"

namespace strata {

absl::Status HttpMemory::Part::Resize(uint64_t bytes) {
  if (bytes <= bytes_) {
    memory_->held_ -= bytes_ - bytes;
    bytes_ = bytes;
    return absl::OkStatus();
  }
  const uint64_t more = bytes - bytes_;
  uint64_t held = memory_->held_;
  do {
    if (held > memory_->most_ || more > memory_->most_ - held) {
      return Error(absl::StatusCode::kResourceExhausted, "HTTP_MEMORY_FULL",
                   "bodies and answers of HTTP requests hold " + std::to_string(held) +
                       " bytes already")
          .Limit("max_http_memory=" + std::to_string(memory_->most_))
          .Hint("send it again later, or raise --max-http-memory of strata-coordinator");
    }
  } while (!memory_->held_.compare_exchange_weak(held, held + more));
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace strata
