// Threads for what clients' texts take: shared fairly by whose they are, and never all held by
// large ones.
#ifndef STRATA_COMMON_RPC_FAIR_CALLS_H_
#define STRATA_COMMON_RPC_FAIR_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/byte_shares.h"
#include "common/mutex.h"
#include "common/rpc/call_threads.h"

namespace strata {

struct FairCallsOptions {
  size_t threads = 4;        // Calls that run at once, but for large ones;
  size_t large_threads = 1;  // and large ones, which give way to all other threads.
  uint64_t large_bytes = uint64_t{256} << 10;  // From here on one is large.
  size_t waiting = 4096;                       // Calls of either kind that may wait.
  std::string name = "waiting_calls";          // As CallThreadsOptions.
  std::string hint = "try again in a moment";
  // What calls that run and wait may read together; of each key as ByteShares has it.
  uint64_t most_bytes = uint64_t{1} << 30;
  std::string bytes_name = "waiting_texts";
  std::string bytes_hint = "try again in a moment";
};

// Which of the waiting calls is next: the oldest of the key that was served least, in bytes, of
// those whose calls wait. Who comes anew is taken for served as the last one was. One thread at a
// time.
class FairQueue {
 public:
  void Push(const std::string& key, uint64_t bytes, std::function<void()> task);
  std::function<void()> Pop();  // There is one.
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t bytes = 0;
    std::function<void()> task;
  };
  struct Share {
    uint64_t served = 0;  // Or what it is taken for since it came.
    std::deque<Entry> waiting;
  };

  std::map<std::string, Share> shares_;  // Of whom calls wait, or who was served more than others.
  uint64_t newest_ = 0;                  // What the one that was served last had been served.
  size_t size_ = 0;
};

// Any thread.
class FairCalls {
 public:
  explicit FairCalls(const FairCallsOptions& options);
  ~FairCalls() { Stop(); }
  FairCalls(const FairCalls&) = delete;
  FairCalls& operator=(const FairCalls&) = delete;

  // Has a thread run `task`, which reads so many bytes for `key`, and does not wait for it.
  // RESOURCE_EXHAUSTED (TOO_MANY_CALLS) when as many run and wait as may, or as many bytes of them,
  // UNAVAILABLE (STOPPING) after Stop.
  absl::Status Run(const std::string& key, uint64_t bytes, std::function<void()> task);
  // Waits until all that was taken has run, and takes nothing more. What tasks use outlives this.
  void Stop();

 private:
  struct Kind {
    explicit Kind(size_t threads);
    FairQueue queue;
    std::unique_ptr<CallThreads> threads;
  };

  const FairCallsOptions options_;
  ByteShares bytes_;  // Of those that run or wait.
  Mutex mutex_;
  bool stopped_ STRATA_GUARDED_BY(mutex_) = false;
  size_t calls_ STRATA_GUARDED_BY(mutex_) = 0;  // That run or wait.
  Kind small_;                                  // Their queues under mutex_.
  Kind large_;
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_FAIR_CALLS_H_
