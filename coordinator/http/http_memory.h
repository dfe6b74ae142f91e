// What HTTP holds for its clients together: bodies of requests, and whole answers.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_MEMORY_H_
#define STRATA_COORDINATOR_HTTP_HTTP_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/byte_shares.h"

namespace strata {

// Any thread.
class HttpMemory {
 public:
  explicit HttpMemory(uint64_t most) : shares_(most) {}

  uint64_t held() const { return shares_.held(); }

  // What one body or answer of `owner` (ByteShares) holds of it; given back with it. One call at a
  // time.
  class Part {
   public:
    explicit Part(std::shared_ptr<HttpMemory> memory, std::string owner = "")
        : memory_(std::move(memory)), owner_(std::move(owner)) {}
    ~Part() { memory_->shares_.Give(owner_, bytes_); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // Holds `bytes` from now on. RESOURCE_EXHAUSTED (HTTP_MEMORY_FULL) where there is no room for
    // more: then it holds what it did.
    absl::Status Resize(uint64_t bytes);

   private:
    const std::shared_ptr<HttpMemory> memory_;
    const std::string owner_;
    uint64_t bytes_ = 0;
  };

 private:
  ByteShares shares_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_MEMORY_H_
