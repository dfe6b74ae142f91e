// A server's end of a call with one request and a stream of answers, on an IoLoop.
#ifndef STRATA_COMMON_RPC_IO_ANSWERS_H_
#define STRATA_COMMON_RPC_IO_ANSWERS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <deque>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/io_loop.h"

namespace strata {

// Answers are written one at a time, by the thread that brings them where none is being written.
// Deletes itself.
template <typename Request, typename Response>
class IoAnswers : public IoCall {
 public:
  // Any thread, once the call was accepted; does not wait. Does nothing once the client is gone, or
  // is cut off because more waits for it than may.
  void Push(Response answer) {
    bool fell_behind = false;
    {
      MutexLock lock(&mutex_);
      if (broken_) {
        return;
      }
      if (!writing_) {
        writing_ = true;
      } else {
        Queue(std::move(answer));
        if (behind_ || queued_bytes_ <= behind_bytes_) {
          return;
        }
        behind_ = true;
        fell_behind = true;
      }
    }
    if (fell_behind) {
      OnReader();
      return;
    }
    Write(answer);
  }

  // After the last Push, exactly once: the call ends as soon as all is written. Any thread; does
  // not wait. Nothing may be called afterwards.
  void Close(const grpc::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (writing_) {
        closed_ = true;
        status_ = status;
        return;  // The last write's end goes on.
      }
    }
    writer_.Finish(status, finished_.tag());
  }

 protected:
  using Writer = grpc::ServerAsyncWriter<Response>;

  // At most `max_unread_bytes` of answers wait for the one that is being written. From more than
  // `behind_bytes` on the reader is behind, until there is half of that.
  IoAnswers(IoLoop* loop, size_t max_unread_bytes, size_t behind_bytes)
      : IoCall(loop, Side::kServer),
        max_unread_bytes_(max_unread_bytes),
        behind_bytes_(behind_bytes) {}

  // Whether there should be no more until OnReader says that it has changed. Any thread.
  bool Behind() {
    MutexLock lock(&mutex_);
    return behind_;
  }

  // `take` is the service's Request..., of this call's context, request, writer and tag.
  template <typename Take>
  void Await(Take take) {
    (void)Begin();
    context_.AsyncNotifyWhenDone(gone_.tag());
    take(&context_, &request_, &writer_, accepted_.tag());
  }

  const grpc::ServerContext& context() const { return context_; }
  const Request& request() const { return request_; }

  // These are called on the loop's thread and must not wait.
  // The next call of the method may be awaited. Close is to follow, on whichever thread.
  virtual void OnAccepted() = 0;
  // Nobody listens any more: the client went away, was cut off or is out of time, or the server
  // ends. At most once, after Close too.
  virtual void OnCancelled() = 0;
  // Behind() says something new; on the loop's thread or that of a Push. Not after Close.
  virtual void OnReader() {}

 private:
  void Queue(Response answer) STRATA_REQUIRES(mutex_) {
    queued_bytes_ += answer.ByteSizeLong();
    if (queued_bytes_ > max_unread_bytes_) {
      broken_ = true;
      queue_.clear();
      context_.TryCancel();
    } else {
      queue_.push_back(std::move(answer));
    }
  }

  void Write(const Response& answer) {
    (void)Begin();  // The call ends after Close only.
    writer_.Write(answer, written_.tag());
  }

  void Accepted(bool ok) {
    if (!ok) {
      End();  // The server ends; gone_ does not come either.
      return;
    }
    (void)Begin();  // For gone_.
    OnAccepted();
  }

  void Written(bool ok) {
    Response next;
    bool caught_up = false;
    {
      MutexLock lock(&mutex_);
      if (!ok) {
        broken_ = true;
        queue_.clear();
      }
      if (queue_.empty()) {
        writing_ = false;
        if (closed_) {
          writer_.Finish(status_, finished_.tag());
        }
        return;
      }
      next = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= next.ByteSizeLong();
      caught_up = behind_ && queued_bytes_ <= behind_bytes_ / 2;
      behind_ = behind_ && !caught_up;
      caught_up = caught_up && !closed_;
    }
    Write(next);
    if (caught_up) OnReader();
  }

  void OnEnd() override { delete this; }

  const size_t max_unread_bytes_;
  const size_t behind_bytes_;
  grpc::ServerContext context_;
  Request request_;
  Writer writer_{&context_};
  Mutex mutex_;
  bool writing_ STRATA_GUARDED_BY(mutex_) = false;
  std::deque<Response> queue_ STRATA_GUARDED_BY(mutex_);
  size_t queued_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  bool behind_ STRATA_GUARDED_BY(mutex_) = false;
  bool broken_ STRATA_GUARDED_BY(mutex_) = false;  // Takes no more.
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
  grpc::Status status_ STRATA_GUARDED_BY(mutex_);
  Op accepted_{this, [this](bool ok) { Accepted(ok); }};
  Op gone_{this, [this](bool) {
             if (context_.IsCancelled()) OnCancelled();
           }};
  Op written_{this, [this](bool ok) { Written(ok); }};
  Op finished_{this, [](bool) {}};
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_IO_ANSWERS_H_
