// Channels of bytes in memory, between two ranks of one process.
#ifndef STRATA_TESTS_WORKER_COLLECTIVE_MEMORY_CHANNELS_H_
#define STRATA_TESTS_WORKER_COLLECTIVE_MEMORY_CHANNELS_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "common/mutex.h"
#include "worker/collective/rank_channel.h"

namespace strata::testing {

// One direction. Holds few bytes at a time, so that frames come in pieces.
struct MemoryPipe {
  size_t capacity = 7;
  std::function<uint8_t(size_t at, uint8_t byte)> change = nullptr;  // Of what passes; or null.

  Mutex mutex;
  std::deque<uint8_t> bytes;
  size_t passed = 0;
  bool ended = false;
};

class MemoryChannel : public RankChannel {
 public:
  MemoryChannel(std::shared_ptr<MemoryPipe> out, std::shared_ptr<MemoryPipe> in)
      : out_(std::move(out)), in_(std::move(in)) {}
  ~MemoryChannel() override { EndSending(); }

  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    MutexLock lock(&out_->mutex);
    const size_t count = std::min(bytes.size(), out_->capacity - out_->bytes.size());
    for (size_t i = 0; i < count; ++i) {
      out_->bytes.push_back(out_->change ? out_->change(out_->passed, bytes[i]) : bytes[i]);
      ++out_->passed;
    }
    return count;
  }
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    MutexLock lock(&in_->mutex);
    const size_t count = std::min(out.size(), in_->bytes.size());
    if (count == 0 && in_->ended && !out.empty()) {
      return absl::UnavailableError("it is gone");
    }
    std::copy_n(in_->bytes.begin(), count, out.begin());
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }
  void EndSending() override {
    MutexLock lock(&out_->mutex);
    out_->ended = true;
  }

 private:
  const std::shared_ptr<MemoryPipe> out_;
  const std::shared_ptr<MemoryPipe> in_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_COLLECTIVE_MEMORY_CHANNELS_H_
