// Messages on their way to one worker: filled by the loop, drained by the control stream's writer.
#ifndef STRATA_COORDINATOR_SERVICE_NODE_CHANNEL_H_
#define STRATA_COORDINATOR_SERVICE_NODE_CHANNEL_H_

#include <deque>
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

  // False when the channel is closed, or was just closed because its queue is full.
  bool Send(v1::CoordinatorMessage message) {
    MutexLock lock(&mutex_);
    if (!closed_ && queue_.size() >= kMaxQueued) {
      closed_ = true;
    }
    if (!closed_) {
      queue_.push_back(std::move(message));
    }
    wake_.NotifyAll();
    return !closed_;
  }

  // Waits for the next message; nullopt once closed.
  std::optional<v1::CoordinatorMessage> Next() {
    MutexLock lock(&mutex_);
    while (queue_.empty() && !closed_) {
      wake_.Wait(&mutex_);
    }
    if (closed_) {
      return std::nullopt;
    }
    v1::CoordinatorMessage message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }

  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    wake_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar wake_;
  std::deque<v1::CoordinatorMessage> queue_ STRATA_GUARDED_BY(mutex_);
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_NODE_CHANNEL_H_
