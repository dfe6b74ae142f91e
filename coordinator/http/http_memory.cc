#include "coordinator/http/http_memory.h"

#include <string>

#include "common/status.h"

namespace strata {

absl::Status HttpMemory::Part::Resize(uint64_t bytes) {
  ByteShares& shares = memory_->shares_;
  if (bytes <= bytes_) {
    shares.Give(owner_, bytes_ - bytes);
  } else if (!shares.Take(owner_, bytes - bytes_)) {
    const uint64_t own = owner_.empty() ? 0 : shares.HeldBy(owner_);
    return Error(absl::StatusCode::kResourceExhausted, "HTTP_MEMORY_FULL",
                 "bodies and answers of HTTP requests hold " + std::to_string(shares.held()) +
                     " bytes already" +
                     (own > 0 ? ", " + std::to_string(own) + " of them those of this API key" : ""))
        .Limit("max_http_memory=" + std::to_string(shares.most()))
        .Hint("send it again later, or raise --max-http-memory of strata-coordinator");
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace strata
