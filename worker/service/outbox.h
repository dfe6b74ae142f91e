// Messages on their way to the coordinator, of one life of the worker.
#ifndef STRATA_WORKER_SERVICE_OUTBOX_H_
#define STRATA_WORKER_SERVICE_OUTBOX_H_

#include <deque>
#include <optional>
#include <utility>

#include "common/mutex.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// Any thread.
class Outbox {
 public:
  // Messages that may wait; a coordinator that takes none for so long is as good as gone.
  static constexpr size_t kMaxQueued = 4096;

  // Drops the message when the box is closed, and closes it when it is full.
  void Send(v1::WorkerMessage message) {
    MutexLock lock(&mutex_);
    if (queue_.size() >= kMaxQueued) {
      closed_ = true;
    }
    if (!closed_) {
      queue_.push_back(std::move(message));
    }
    changed_.NotifyAll();
  }

  // Waits for the next message; nullopt once closed.
  std::optional<v1::WorkerMessage> Next() {
    MutexLock lock(&mutex_);
    while (queue_.empty() && !closed_) {
      changed_.Wait(&mutex_);
    }
    if (closed_) {
      return std::nullopt;
    }
    v1::WorkerMessage message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }

  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::WorkerMessage> queue_ STRATA_GUARDED_BY(mutex_);
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_OUTBOX_H_
