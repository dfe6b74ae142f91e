// A client's end of a stream of both directions on an IoLoop.
#ifndef STRATA_COMMON_RPC_IO_STREAM_H_
#define STRATA_COMMON_RPC_IO_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <memory>
#include <utility>

#include "common/rpc/io_loop.h"

namespace strata {

// Reactions run on the loop's thread, one at a time, and must not wait.
template <typename Request, typename Reply>
class IoClientStream : public IoCall {
 protected:
  using Stream = grpc::ClientAsyncReaderWriter<Request, Reply>;

  explicit IoClientStream(IoLoop* loop)
      : IoCall(loop, Side::kClient),
        started_(this, [this](bool ok) { ok ? OnStarted() : Finish(); }),
        read_(this,
              [this](bool ok) {
                OnRead(ok);
                if (!ok) {
                  Finish();
                }
              }),
        written_(this, [this](bool ok) { OnWritten(ok); }),
        finished_(this, [](bool) {}) {}

  grpc::ClientContext* context() { return &context_; }

  // `stream` is what stub->PrepareAsync...(context(), loop()->queue()) gave. From here on OnDone
  // follows in any case.
  void Start(std::unique_ptr<Stream> stream) {
    stream_ = std::move(stream);
    (void)Begin();  // Before anything has ended.
    stream_->StartCall(started_.tag());
  }

  // The next read, or write; not before the reaction to the one before. `reply` stays until then.
  // Any thread, from OnStarted on. Do nothing once the stream has ended.
  void Read(Reply* reply) {
    if (Begin()) {
      stream_->Read(reply, read_.tag());
    }
  }
  void Write(const Request& request) {
    if (Begin()) {
      stream_->Write(request, written_.tag());
    }
  }

  // The first Read belongs here: the stream ends by a read that fails.
  virtual void OnStarted() = 0;
  virtual void OnRead(bool ok) = 0;
  virtual void OnWritten(bool ok) = 0;
  // Last. May delete this.
  virtual void OnDone(const grpc::Status& status) = 0;

 private:
  void Finish() { stream_->Finish(&status_, finished_.tag()); }
  void OnEnd() final { OnDone(status_); }

  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;  // After context_: it lies in the call's memory.
  grpc::Status status_;
  Op started_;
  Op read_;
  Op written_;
  Op finished_;
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_IO_STREAM_H_
