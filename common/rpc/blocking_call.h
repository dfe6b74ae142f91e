// Calls whose handlers wait, on a server whose loop must not: a call is accepted on the loop, its
// handler runs on one of CallThreads and reads and writes as with gRPC's synchronous API, and the
// handler's return ends the call.
#ifndef STRATA_COMMON_RPC_BLOCKING_CALL_H_
#define STRATA_COMMON_RPC_BLOCKING_CALL_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"

namespace strata {

// A call as its handler sees it. Any thread, until the handler returns.
class CallContext {
 public:
  // Nobody waits for the answer any more: the client went away, its deadline passed, or the server
  // has waited long enough for the handler to end.
  bool IsCancelled() const { return cancelled_; }
  // Ends the call from this end: its client is told `status`, what the handler reads or writes
  // fails, and what it returns is told to nobody. Once.
  virtual void EndWith(const grpc::Status& status) = 0;
  // Metadata, deadline, peer.
  const grpc::ServerContext& grpc() const { return grpc_; }

 protected:
  CallContext() = default;
  ~CallContext() = default;

  grpc::ServerContext grpc_;
  std::atomic<bool> cancelled_ = false;
};

// The stream of a call. One thread may read while another one writes.
template <typename Response>
class CallWriter {
 public:
  // Waits until it is on its way. False once the call is cancelled.
  virtual bool Write(const Response& response) = 0;

 protected:
  ~CallWriter() = default;
};

template <typename Response, typename Request>
class CallStream : public CallWriter<Response> {
 public:
  // Waits for it. False at the end of what the client sends, and once the call is cancelled.
  virtual bool Read(Request* request) = 0;

 protected:
  ~CallStream() = default;
};

// Has a thread run a call's handler, now or later, or says why not.
using CallRunner = std::function<absl::Status(const grpc::ServerContext& call, size_t request_bytes,
                                              std::function<void()> handler)>;

// What the kinds of such calls share. Deletes itself.
class BlockingCall : public IoCall, public CallContext {
 protected:
  // An operation that the handler waits for.
  class Waited {
   public:
    explicit Waited(BlockingCall* call) : call_(call) {}
    // Starts one, with its tag, and returns how it ended.
    template <typename Start>
    bool Run(Start start) {
      (void)call_->Begin();  // The call ends after its handler only.
      start(op_.tag());
      return Wait();
    }

   private:
    void Set(bool ok);
    bool Wait();

    BlockingCall* const call_;
    Mutex mutex_;
    CondVar done_;
    std::optional<bool> ok_ STRATA_GUARDED_BY(mutex_);
    Op op_{call_, [this](bool ok) { Set(ok); }};
  };

  BlockingCall(IoLoop* loop, CallRunner runner)
      : IoCall(loop, Side::kServer), runner_(std::move(runner)) {}
  ~BlockingCall() override = default;

  // For the service's Request..., which comes next: the tag of an accepted call.
  void* Await();
  void* finished() { return finished_.tag(); }

  // Awaits the method's next call.
  virtual void AwaitNext() = 0;
  // Runs the handler and finishes. On a thread.
  virtual void Handle() = 0;
  // Of the request, where it is there when the call is accepted.
  virtual size_t RequestBytes() const { return 0; }
  // Finishes without an answer. Any thread.
  virtual void Finish(const grpc::Status& status) = 0;

  // Whether the handler's end is to finish the call; not where EndWith has. Once, at its end.
  bool MayFinish();

 private:
  void OnAccepted(bool ok);
  void EndWith(const grpc::Status& status) final;
  void OnEnd() final { delete this; }

  const CallRunner runner_;
  ServedContext served_{loop(), &grpc_};
  std::atomic<bool> finishes_ = false;  // Whoever sets it.
  Op accepted_{this, [this](bool ok) { OnAccepted(ok); }};
  // The client went away, or has its answer.
  Op gone_{this, [this](bool) {
             if (grpc_.IsCancelled()) cancelled_ = true;
           }};
  Op finished_{this, [](bool) {}};
};

// How calls of one method are taken, and what handles them.
template <typename Handle, typename... Call>
struct BlockingMethod {
  using Handler = std::function<Handle>;
  IoLoop* loop;
  CallRunner runner;
  std::function<void(void* tag, grpc::ServerContext*, Call*...)> request;
  Handler handler;
};

template <typename Request, typename Response>
class BlockingUnaryCall final : public BlockingCall {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  using Method =
      BlockingMethod<grpc::Status(CallContext*, const Request*, Response*), Request, Writer>;

  explicit BlockingUnaryCall(std::shared_ptr<const Method> method)
      : BlockingCall(method->loop, method->runner), method_(std::move(method)) {
    method_->request(Await(), &grpc_, &request_, &writer_);
  }

 private:
  size_t RequestBytes() const override { return request_.ByteSizeLong(); }
  void AwaitNext() override { new BlockingUnaryCall(method_); }
  void Handle() override {
    const grpc::Status status = method_->handler(this, &request_, &response_);
    if (!MayFinish()) {
      return;
    }
    if (status.ok()) {
      writer_.Finish(response_, status, finished());
    } else {
      Finish(status);
    }
  }
  void Finish(const grpc::Status& status) override { writer_.FinishWithError(status, finished()); }

  const std::shared_ptr<const Method> method_;
  Request request_;
  Response response_;
  Writer writer_{&grpc_};
};

template <typename Request, typename Response>
class BlockingServerStream final : public BlockingCall, private CallWriter<Response> {
 public:
  using Writer = grpc::ServerAsyncWriter<Response>;
  using Method = BlockingMethod<grpc::Status(CallContext*, const Request*, CallWriter<Response>*),
                                Request, Writer>;

  explicit BlockingServerStream(std::shared_ptr<const Method> method)
      : BlockingCall(method->loop, method->runner), method_(std::move(method)) {
    method_->request(Await(), &grpc_, &request_, &writer_);
  }

 private:
  size_t RequestBytes() const override { return request_.ByteSizeLong(); }
  void AwaitNext() override { new BlockingServerStream(method_); }
  void Handle() override {
    const grpc::Status status = method_->handler(this, &request_, this);
    if (MayFinish()) Finish(status);
  }
  void Finish(const grpc::Status& status) override { writer_.Finish(status, finished()); }
  bool Write(const Response& response) override {
    return written_.Run([&](void* tag) { writer_.Write(response, tag); });
  }

  const std::shared_ptr<const Method> method_;
  Request request_;
  Writer writer_{&grpc_};
  Waited written_{this};
};

template <typename Request, typename Response>
class BlockingBidiStream final : public BlockingCall, private CallStream<Response, Request> {
 public:
  using Stream = grpc::ServerAsyncReaderWriter<Response, Request>;
  using Method = BlockingMethod<grpc::Status(CallContext*, CallStream<Response, Request>*), Stream>;

  explicit BlockingBidiStream(std::shared_ptr<const Method> method)
      : BlockingCall(method->loop, method->runner), method_(std::move(method)) {
    method_->request(Await(), &grpc_, &stream_);
  }

 private:
  void AwaitNext() override { new BlockingBidiStream(method_); }
  void Handle() override {
    const grpc::Status status = method_->handler(this, this);
    if (MayFinish()) Finish(status);
  }
  void Finish(const grpc::Status& status) override { stream_.Finish(status, finished()); }
  bool Read(Request* request) override {
    return read_.Run([&](void* tag) { stream_.Read(request, tag); });
  }
  bool Write(const Response& response) override {
    return written_.Run([&](void* tag) { stream_.Write(response, tag); });
  }

  const std::shared_ptr<const Method> method_;
  Stream stream_{&grpc_};
  Waited read_{this};
  Waited written_{this};
};

// Serves methods of one service (`Async`: its AsyncService) by handlers that wait. `service` and
// `threads` outlive the server. Calls beyond the limit of `threads` are refused with its error; the
// handler of one that was cancelled before its turn came does not run. Handlers that wait for
// anything but their stream look at IsCancelled, or are woken before RpcServer::Shutdown.
template <typename Async>
class BlockingMethods {
 public:
  BlockingMethods(Async* service, IoLoop* loop, CallThreads* threads)
      : BlockingMethods(
            service, loop,
            [threads](const grpc::ServerContext&, size_t, std::function<void()> handler) {
              return threads->Run(std::move(handler));
            }) {}
  BlockingMethods(Async* service, IoLoop* loop, CallRunner runner)
      : service_(service), loop_(loop), runner_(std::move(runner)) {}

  // `request` is the service's Request...: which kind of call it is follows from that.
  template <typename Base, typename Request, typename Response>
  void Serve(void (Base::*request)(grpc::ServerContext*, Request*,
                                   grpc::ServerAsyncResponseWriter<Response>*,
                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
             typename BlockingUnaryCall<Request, Response>::Method::Handler handler) const {
    ServeCalls<BlockingUnaryCall<Request, Response>>(request, std::move(handler));
  }
  template <typename Base, typename Request, typename Response>
  void Serve(void (Base::*request)(grpc::ServerContext*, Request*,
                                   grpc::ServerAsyncWriter<Response>*, grpc::CompletionQueue*,
                                   grpc::ServerCompletionQueue*, void*),
             typename BlockingServerStream<Request, Response>::Method::Handler handler) const {
    ServeCalls<BlockingServerStream<Request, Response>>(request, std::move(handler));
  }
  template <typename Base, typename Request, typename Response>
  void Serve(void (Base::*request)(grpc::ServerContext*,
                                   grpc::ServerAsyncReaderWriter<Response, Request>*,
                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
             typename BlockingBidiStream<Request, Response>::Method::Handler handler) const {
    ServeCalls<BlockingBidiStream<Request, Response>>(request, std::move(handler));
  }

 private:
  template <typename Call, typename RequestFn, typename Handler>
  void ServeCalls(RequestFn request, Handler handler) const {
    using Method = typename Call::Method;
    const auto take = [request, service = service_, loop = loop_](void* tag, auto*... call) {
      (service->*request)(call..., loop->queue(), loop->server_queue(), tag);
    };
    new Call(std::make_shared<const Method>(Method{loop_, runner_, take, std::move(handler)}));
  }

  Async* const service_;
  IoLoop* const loop_;
  const CallRunner runner_;
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_BLOCKING_CALL_H_
