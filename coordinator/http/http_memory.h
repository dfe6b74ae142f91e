// What HTTP holds for its clients together: bodies of requests, and whole answers.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_MEMORY_H_
#define STRATA_COORDINATOR_HTTP_HTTP_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace strata {

// Any thread.
class HttpMemory {
 public:
  explicit HttpMemory(uint64_t most) : most_(most) {}

  uint64_t held() const { return held_; }

  // What one body or answer holds of it; given back with it. One call at a time.
  class Part {
   public:
    explicit Part(std::shared_ptr<HttpMemory> memory) : memory_(std::move(memory)) {}
    ~Part() { memory_->held_ -= bytes_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // Holds `bytes` from now on. RESOURCE_EXHAUSTED (HTTP_MEMORY_FULL) where there is no room for
    // more: then it holds what it did.
    absl::Status Resize(uint64_t bytes);

   private:
    const std::shared_ptr<HttpMemory> memory_;
    uint64_t bytes_ = 0;
  };

 private:
  const uint64_t most_;
  std::atomic<uint64_t> held_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_MEMORY_H_
