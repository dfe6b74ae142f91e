// The control stream of one life of a worker.
#ifndef STRATA_WORKER_SERVICE_CONTROL_STREAM_H_
#define STRATA_WORKER_SERVICE_CONTROL_STREAM_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/rpc/io_loop.h"
#include "strata/v1/membership.grpc.pb.h"

namespace strata {

// Nobody waits in gRPC: what comes in is handed over on the loop's thread. Destroy and Write off
// it.
class ControlStream {
 public:
  // Called on the loop's thread, one at a time; must not wait.
  using OnMessage = std::function<void(const v1::CoordinatorMessage& message)>;
  using OnEnded = std::function<void()>;  // Once, last.

  // Begins with `hello`. `loop` and `stub` outlive the stream.
  ControlStream(IoLoop* loop, v1::MembershipService::Stub* stub, const v1::WorkerMessage& hello,
                OnMessage on_message, OnEnded on_ended);
  ~ControlStream();  // Cancels, and waits for the end.
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  // Waits until the message, and what was to be written before it, is on its way. False once the
  // stream has ended. One thread.
  bool Write(const v1::WorkerMessage& message);

  void Cancel();  // Any thread; does not wait.

  // Waits for the end; what the coordinator said of it.
  absl::Status Wait();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_CONTROL_STREAM_H_
