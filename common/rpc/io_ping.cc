#include "common/rpc/io_ping.h"

#include <grpcpp/alarm.h>

#include <utility>

namespace strata {
namespace {

class Ping : public IoCall {
 public:
  Ping(IoLoop* loop, std::function<void()> answer)
      : IoCall(loop, Side::kClient),
        rang_(this, [answer = std::move(answer)](bool /*ok*/) { answer(); }) {}
  // Its own reference is the alarm's.
  void Start() { alarm_.Set(loop()->queue(), gpr_inf_past(GPR_CLOCK_MONOTONIC), rang_.tag()); }

 private:
  void OnEnd() override { delete this; }

  Op rang_;
  grpc::Alarm alarm_;
};

}  // namespace

void PingIoLoop(IoLoop* loop, std::function<void()> answer) {
  (new Ping(loop, std::move(answer)))->Start();
}

}  // namespace strata
