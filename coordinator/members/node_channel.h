// Messages on their way to one worker: filled by the loop, emptied by the control stream.
#ifndef STRATA_COORDINATOR_MEMBERS_NODE_CHANNEL_H_
#define STRATA_COORDINATOR_MEMBERS_NODE_CHANNEL_H_

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "common/mutex.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// Any thread.
class NodeChannel {
 public:
  // Messages that may wait; a worker that takes none for so long is as good as gone.
  static constexpr size_t kMaxQueued = 1024;

  // `changed` is called after each Send and Close, on the thread that called it.
  explicit NodeChannel(std::function<void()> changed = [] {}) : changed_(std::move(changed)) {}

  // False when the channel is closed, or was just closed because its queue is full.
  bool Send(v1::CoordinatorMessage message) {
    bool sent = false;
    {
      MutexLock lock(&mutex_);
      if (queue_.size() >= kMaxQueued) {
        closed_ = true;
      }
      sent = !closed_;
      if (sent) {
        queue_.push_back(std::move(message));
      }
    }
    changed_();
    return sent;
  }

  // The next message; nullopt when none waits, and once closed.
  std::optional<v1::CoordinatorMessage> TryNext() {
    MutexLock lock(&mutex_);
    if (closed_ || queue_.empty()) {
      return std::nullopt;
    }
    v1::CoordinatorMessage message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }

  void Close() {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
    }
    changed_();
  }

  bool closed() {
    MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  const std::function<void()> changed_;
  Mutex mutex_;
  std::deque<v1::CoordinatorMessage> queue_ STRATA_GUARDED_BY(mutex_);
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_MEMBERS_NODE_CHANNEL_H_
