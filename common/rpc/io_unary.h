// A server's end of a unary call on an IoLoop.
#ifndef STRATA_COMMON_RPC_IO_UNARY_H_
#define STRATA_COMMON_RPC_IO_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <utility>

#include "common/rpc/io_loop.h"

namespace strata {

template <typename Request, typename Response>
class IoUnaryCall : public IoCall {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  struct Method {
    // The service's Request..., of this call's context, request, writer and tag.
    std::function<void(grpc::ServerContext*, Request*, Writer*, void*)> request;
    // On the loop's thread; must not wait.
    std::function<grpc::Status(const Request&, Response*)> answer;
  };

  // Answers one call after another until the server ends.
  static void Serve(IoLoop* loop, const Method& method) { new IoUnaryCall(loop, method); }

 private:
  IoUnaryCall(IoLoop* loop, const Method& method) : IoCall(loop, Side::kServer), method_(method) {
    (void)Begin();
    method_.request(&context_, &request_, &writer_, accepted_.tag());
  }

  void OnAccepted(bool ok) {
    if (!ok) {
      End();
      return;
    }
    Serve(loop(), method_);
    Response response;
    const grpc::Status status = method_.answer(request_, &response);
    if (status.ok()) {
      writer_.Finish(response, status, finished_.tag());
    } else {
      writer_.FinishWithError(status, finished_.tag());
    }
  }
  void OnEnd() override { delete this; }

  const Method method_;
  grpc::ServerContext context_;
  Request request_;
  Writer writer_{&context_};
  Op accepted_{this, [this](bool ok) { OnAccepted(ok); }};
  Op finished_{this, [](bool) {}};
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_IO_UNARY_H_
