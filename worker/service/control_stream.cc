#include "worker/service/control_stream.h"

#include <utility>

#include "common/mutex.h"
#include "common/rpc/io_stream.h"
#include "common/rpc/status.h"

namespace strata {

class ControlStream::Impl : public IoClientStream<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  Impl(IoLoop* loop, v1::WorkerMessage hello, OnMessage on_message, OnEnded on_ended)
      : IoClientStream(loop),
        hello_(std::move(hello)),
        on_message_(std::move(on_message)),
        on_ended_(std::move(on_ended)) {}

  void Open(v1::MembershipService::Stub* stub) {
    Start(stub->PrepareAsyncControl(context(), loop()->queue()));
  }

  bool Send(const v1::WorkerMessage& message) {
    if (!WaitWritten()) {
      return false;
    }
    {
      MutexLock lock(&mutex_);
      writing_ = true;
    }
    Write(message);
    return WaitWritten();  // `message` is the caller's.
  }

  void Cancel() { context()->TryCancel(); }

  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!ended_) {
      changed_.Wait(&mutex_);
    }
    return status_;
  }

 private:
  // Whether the last write went well.
  bool WaitWritten() {
    MutexLock lock(&mutex_);
    while (writing_ && !ended_) {
      changed_.Wait(&mutex_);
    }
    return !writing_ && !failed_;
  }

  void OnStarted() override {
    Write(hello_);
    Read(&message_);
  }

  void OnRead(bool ok) override {
    if (ok) {
      on_message_(message_);
      Read(&message_);
    }
  }

  void OnWritten(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    failed_ = failed_ || !ok;
    changed_.NotifyAll();
  }

  void OnDone(const grpc::Status& status) override {
    on_ended_();
    MutexLock lock(&mutex_);
    status_ = FromGrpc(status);
    ended_ = true;
    changed_.NotifyAll();
  }

  const v1::WorkerMessage hello_;
  const OnMessage on_message_;
  const OnEnded on_ended_;
  v1::CoordinatorMessage message_;  // Of the reads.

  Mutex mutex_;
  CondVar changed_;
  bool writing_ STRATA_GUARDED_BY(mutex_) = true;  // First hello_.
  bool failed_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  absl::Status status_ STRATA_GUARDED_BY(mutex_);
};

ControlStream::ControlStream(IoLoop* loop, v1::MembershipService::Stub* stub,
                             const v1::WorkerMessage& hello, OnMessage on_message, OnEnded on_ended)
    : impl_(std::make_unique<Impl>(loop, hello, std::move(on_message), std::move(on_ended))) {
  impl_->Open(stub);
}

ControlStream::~ControlStream() {
  impl_->Cancel();
  impl_->Wait().IgnoreError();
}

bool ControlStream::Write(const v1::WorkerMessage& message) { return impl_->Send(message); }
void ControlStream::Cancel() { impl_->Cancel(); }
absl::Status ControlStream::Wait() { return impl_->Wait(); }

}  // namespace strata
