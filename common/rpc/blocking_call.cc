#include "common/rpc/blocking_call.h"

#include "common/rpc/status.h"

namespace strata {

void* BlockingCall::Await() {
  (void)Begin();
  grpc_.AsyncNotifyWhenDone(gone_.tag());
  return accepted_.tag();
}

void BlockingCall::OnAccepted(bool ok) {
  if (!ok) {
    End();  // The server ends; gone_ does not come either.
    return;
  }
  (void)Begin();  // For gone_.
  served_.Accepted();
  AwaitNext();
  const absl::Status taken = runner_(grpc_, RequestBytes(), [this] {
    if (IsCancelled()) {
      Finish(grpc::Status::CANCELLED);
    } else {
      Handle();
    }
  });
  if (!taken.ok()) {
    Finish(ToGrpc(taken));
  }
}

void BlockingCall::EndWith(const grpc::Status& status) {
  if (finishes_.exchange(true)) {
    return;
  }
  cancelled_ = true;
  (void)Begin();  // For the handler, which has not returned.
  Finish(status);
}

bool BlockingCall::MayFinish() {
  if (!finishes_.exchange(true)) {
    return true;
  }
  End();  // EndWith's.
  return false;
}

void BlockingCall::Waited::Set(bool ok) {
  MutexLock lock(&mutex_);
  ok_ = ok;
  done_.NotifyOne();
}

bool BlockingCall::Waited::Wait() {
  MutexLock lock(&mutex_);
  while (!ok_.has_value()) {
    done_.Wait(&mutex_);
  }
  return *std::exchange(ok_, std::nullopt);
}

}  // namespace strata
