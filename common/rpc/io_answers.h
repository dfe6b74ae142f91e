// A server's end of a call with one request and a stream of answers, on an IoLoop.
#ifndef STRATA_COMMON_RPC_IO_ANSWERS_H_
#define STRATA_COMMON_RPC_IO_ANSWERS_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {

// What a client may leave unread of one call.
struct ReaderLimits {
  size_t most_unread_bytes = 0;  // Of answers that wait for the one that is being written.
  // From more than this on the reader is behind, until there is half of that.
  size_t behind_bytes = 0;
  // Who takes nothing for so long while something waits is cut off. 0: never.
  std::chrono::nanoseconds timeout{0};
  std::string hint;  // What who is cut off is told to do.
};

// Answers are written one at a time, by the thread that brings them where none is being written.
// Deletes itself.
template <typename Request, typename Response>
class IoAnswers : public IoCall {
 public:
  // Any thread, once the call was accepted; does not wait. Does nothing once the client is gone or
  // cut off. Who is cut off is told so by RESOURCE_EXHAUSTED (SLOW_READER), if it reads on within
  // the same time again; else its call is cancelled.
  void Push(Response answer) {
    bool fell_behind = false;
    bool too_much = false;
    {
      MutexLock lock(&mutex_);
      if (broken_) {
        return;
      }
      if (!writing_) {
        BeginWriting();
      } else {
        Watch();
        queued_bytes_ += answer.ByteSizeLong();
        queue_.push_back(std::move(answer));
        too_much = queued_bytes_ > limits_.most_unread_bytes;
        if (too_much) {
          CutOff("more than " + FormatSize(limits_.most_unread_bytes) + " of the answer wait");
        } else if (behind_ || queued_bytes_ <= limits_.behind_bytes) {
          return;
        }
        fell_behind = !std::exchange(behind_, true);
      }
    }
    if (too_much) {
      OnCancelled();
      return;
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
    grpc::Status end;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      if (!cut_off_) status_ = status;
      if (writing_) {
        Watch();
        return;  // The last write's end goes on.
      }
      end = EndStatus();
    }
    writer_.Finish(end, finished_.tag());
  }

 protected:
  using Writer = grpc::ServerAsyncWriter<Response>;

  IoAnswers(IoLoop* loop, ReaderLimits limits)
      : IoCall(loop, Side::kServer), limits_(std::move(limits)) {}

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

  // These must not wait, and are called on the loop's thread unless they say otherwise.
  // The next call of the method may be awaited. Close is to follow, on whichever thread.
  virtual void OnAccepted() = 0;
  // Nobody listens any more: the client went away, was cut off or is out of time, or the server
  // ends. Once or twice, after Close too; of who is cut off on the thread of that Push.
  virtual void OnCancelled() = 0;
  // Behind() says something new; on the loop's thread or that of a Push. Not after Close.
  virtual void OnReader() {}

 private:
  using Clock = std::chrono::steady_clock;

  void BeginWriting() STRATA_REQUIRES(mutex_) {
    writing_ = true;
    write_since_ = Clock::now();
  }

  // Something waits for the client: looks later whether it still does.
  void Watch() STRATA_REQUIRES(mutex_) {
    if (limits_.timeout.count() > 0 && !alarm_set_) {
      SetAlarm(write_since_ + limits_.timeout - Clock::now());
    }
  }

  void SetAlarm(std::chrono::nanoseconds after) STRATA_REQUIRES(mutex_) {
    (void)Begin();  // It is not finished while something is being written.
    alarm_set_ = true;
    alarm_.emplace();
    alarm_->Set(loop()->queue(),
                std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(
                        std::max(after, std::chrono::nanoseconds(0))),
                overdue_.tag());
  }

  void CutOff(const std::string& what) STRATA_REQUIRES(mutex_) {
    cut_off_ = broken_ = true;
    queue_.clear();
    status_ =
        ToGrpc(Error(absl::StatusCode::kResourceExhausted, "SLOW_READER", what).Hint(limits_.hint));
    write_since_ = Clock::now();  // To read on in.
  }

  void Overdue() {
    {
      MutexLock lock(&mutex_);
      alarm_set_ = false;
      if (!writing_) {
        return;
      }
      const auto left = write_since_ + limits_.timeout - Clock::now();
      if (left.count() > 0) {
        SetAlarm(left);
        return;
      }
      if (cut_off_) {
        context_.TryCancel();
        return;
      }
      CutOff("the client took nothing of its answer for " + FormatDuration(limits_.timeout));
      SetAlarm(limits_.timeout);
    }
    OnCancelled();
  }

  // How the call ends, once it is closed and nothing is being written.
  grpc::Status EndStatus() STRATA_REQUIRES(mutex_) {
    if (alarm_set_) alarm_->Cancel();
    return std::move(status_);
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
    served_.Accepted();
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
          writer_.Finish(EndStatus(), finished_.tag());
        }
        return;
      }
      next = std::move(queue_.front());
      queue_.pop_front();
      BeginWriting();
      queued_bytes_ -= next.ByteSizeLong();
      caught_up = behind_ && queued_bytes_ <= limits_.behind_bytes / 2;
      behind_ = behind_ && !caught_up;
      caught_up = caught_up && !closed_;
    }
    Write(next);
    if (caught_up) OnReader();
  }

  void OnEnd() override { delete this; }

  const ReaderLimits limits_;
  grpc::ServerContext context_;
  ServedContext served_{loop(), &context_};
  Request request_;
  Writer writer_{&context_};
  Mutex mutex_;
  bool writing_ STRATA_GUARDED_BY(mutex_) = false;
  Clock::time_point write_since_ STRATA_GUARDED_BY(mutex_);  // If it is writing.
  std::deque<Response> queue_ STRATA_GUARDED_BY(mutex_);
  size_t queued_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  bool behind_ STRATA_GUARDED_BY(mutex_) = false;
  bool broken_ STRATA_GUARDED_BY(mutex_) = false;  // Takes no more.
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
  bool cut_off_ STRATA_GUARDED_BY(mutex_) = false;  // With status_.
  grpc::Status status_ STRATA_GUARDED_BY(mutex_);
  bool alarm_set_ STRATA_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Alarm> alarm_ STRATA_GUARDED_BY(mutex_);
  Op accepted_{this, [this](bool ok) { Accepted(ok); }};
  Op gone_{this, [this](bool) {
             if (context_.IsCancelled()) OnCancelled();
           }};
  Op written_{this, [this](bool ok) { Written(ok); }};
  Op finished_{this, [](bool) {}};
  Op overdue_{this, [this](bool) { Overdue(); }};
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_IO_ANSWERS_H_
