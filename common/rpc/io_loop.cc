#include "common/rpc/io_loop.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>

#include <utility>

namespace strata {

IoLoop::IoLoop()
    : queue_(std::make_unique<grpc::CompletionQueue>()),
      server_queue_(nullptr),
      thread_([this] { Run(); }) {}

IoLoop::IoLoop(std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)),
      server_queue_(static_cast<grpc::ServerCompletionQueue*>(queue_.get())),
      thread_([this] { Run(); }) {}

IoLoop::~IoLoop() { Stop(); }

void IoLoop::AwaitServed() {
  MutexLock lock(&mutex_);
  while (served_ > 0) {
    changed_.Wait(&mutex_);
  }
}

void IoLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    while (calls_ > 0) {
      changed_.Wait(&mutex_);
    }
    if (std::exchange(stopped_, true)) {
      return;
    }
  }
  queue_->Shutdown();  // gRPC allows no operation to start from here on.
  thread_.join();
}

void IoLoop::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    static_cast<IoTag*>(tag)->OnDone(ok);
  }
}

void IoLoop::Count(int calls, int served) {
  MutexLock lock(&mutex_);
  calls_ += calls;
  served_ += served;
  if (calls_ == 0 || served_ == 0) {
    changed_.NotifyAll();
  }
}

size_t IoLoop::CancelServed(const std::function<bool(const grpc::ServerContext&)>& whom) {
  MutexLock lock(&contexts_mutex_);
  size_t cancelled = 0;
  for (grpc::ServerContext* context : contexts_) {
    if (whom(*context)) {
      context->TryCancel();
      ++cancelled;
    }
  }
  return cancelled;
}

ServedContext::~ServedContext() {
  if (listed_) {
    MutexLock lock(&loop_->contexts_mutex_);
    loop_->contexts_.erase(context_);
  }
}

void ServedContext::Accepted() {
  (void)context_->auth_context();  // Which makes it, once: from here on it is only read.
  MutexLock lock(&loop_->contexts_mutex_);
  loop_->contexts_.insert(context_);
  listed_ = true;
}

IoCall::IoCall(IoLoop* loop, Side side) : loop_(loop), side_(side) {
  loop_->Count(1, side_ == Side::kServer ? 1 : 0);
}
IoCall::~IoCall() { loop_->Count(-1, side_ == Side::kServer ? -1 : 0); }

bool IoCall::Begin() {
  int n = under_way_.load();
  while (n != 0 && !under_way_.compare_exchange_weak(n, n + 1)) {
  }
  return n != 0;
}

void IoCall::End() {
  if (under_way_.fetch_sub(1) == 1) {
    OnEnd();
  }
}

void IoCall::Op::OnDone(bool ok) {
  // Pairs with Begin on the thread that started the operation, whose writes are seen from here.
  (void)call_->under_way_.load();
  done_(ok);
  call_->End();
}

}  // namespace strata
