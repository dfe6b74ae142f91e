#include "common/rpc/fair_calls.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/platform/platform.h"
#include "common/status.h"

namespace strata {
namespace {

// What a call costs beside its bytes.
constexpr uint64_t kCallBytes = 1024;
// Steps of niceness by which threads for large texts give way: where cores are few, small texts and
// the steps of models go on beside them.
constexpr int kLargeGivesWay = 10;

}  // namespace

void FairQueue::Push(const std::string& key, uint64_t bytes, std::function<void()> task) {
  Share& share = shares_[key];
  if (share.waiting.empty()) share.served = std::max(share.served, newest_);
  share.waiting.push_back({bytes, std::move(task)});
  ++size_;
}

std::function<void()> FairQueue::Pop() {
  auto least = shares_.end();
  for (auto it = shares_.begin(); it != shares_.end();) {
    if (it->second.waiting.empty()) {
      // It would be taken for as much when it comes again.
      it = it->second.served <= newest_ ? shares_.erase(it) : std::next(it);
      continue;
    }
    if (least == shares_.end() || it->second.served < least->second.served) least = it;
    ++it;
  }
  Share& share = least->second;
  Entry next = std::move(share.waiting.front());
  share.waiting.pop_front();
  --size_;
  newest_ = share.served;
  share.served += next.bytes + kCallBytes;
  return std::move(next.task);
}

FairCalls::Kind::Kind(size_t threads)
    : threads(std::make_unique<CallThreads>(CallThreadsOptions{
          .threads = threads, .waiting = std::numeric_limits<size_t>::max() - threads})) {}

FairCalls::FairCalls(const FairCallsOptions& options)
    : options_(options),
      bytes_(options.most_bytes),
      small_(options.threads),
      large_(options.large_threads) {}

absl::Status FairCalls::Run(const std::string& key, uint64_t bytes, std::function<void()> task) {
  const bool is_large = bytes >= options_.large_bytes;
  Kind& kind = is_large ? large_ : small_;
  MutexLock lock(&mutex_);
  if (stopped_) {
    return Error(absl::StatusCode::kUnavailable, "STOPPING", "the coordinator is stopping");
  }
  const size_t most = options_.threads + options_.large_threads + options_.waiting;
  if (calls_ >= most) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
                 std::to_string(calls_) + " calls of this kind are under way already")
        .Limit(options_.name + "=" + std::to_string(most))
        .Hint(options_.hint);
  }
  if (!bytes_.Take(key, bytes)) {
    const uint64_t own = key.empty() ? 0 : bytes_.HeldBy(key);
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
                 "texts of " + std::to_string(bytes_.held()) + " bytes wait already" +
                     (own > 0 ? ", " + std::to_string(own) + " of them those of this API key" : ""))
        .Limit(options_.bytes_name + "=" + std::to_string(bytes_.most()))
        .Hint(options_.bytes_hint);
  }
  ++calls_;
  kind.queue.Push(key, bytes, [this, key, bytes, run = std::move(task)]() mutable {
    run();
    run = nullptr;  // What it holds ends before others may hold as much.
    bytes_.Give(key, bytes);
  });
  // A thread takes whichever is next when it is free.
  return kind.threads->Run([this, &kind, is_large] {
    thread_local bool gives_way = false;
    if (is_large && !std::exchange(gives_way, true)) ThreadGivesWay(kLargeGivesWay);
    std::function<void()> next;
    {
      MutexLock taking(&mutex_);
      next = kind.queue.Pop();
    }
    next();
    next = nullptr;  // What it holds ends before the count says so.
    MutexLock done(&mutex_);
    --calls_;
  });
}

void FairCalls::Stop() {
  std::unique_ptr<CallThreads> small;
  std::unique_ptr<CallThreads> large;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    small = std::move(small_.threads);
    large = std::move(large_.threads);
  }
  small.reset();
  large.reset();
}

}  // namespace strata
