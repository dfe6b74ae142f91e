// One gRPC completion queue and the one thread that runs it. A process whose calls are all on one
// loop has no other thread in gRPC: what comes in wakes one thread, which reads and delivers it.
#ifndef STRATA_COMMON_RPC_IO_LOOP_H_
#define STRATA_COMMON_RPC_IO_LOOP_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "common/mutex.h"

namespace grpc {
class CompletionQueue;
class ServerCompletionQueue;
class ServerContext;
}  // namespace grpc

namespace strata {

// What gRPC hands back when an operation has ended.
class IoTag {
 public:
  virtual ~IoTag() = default;
  // On the loop's thread. `ok` as gRPC says it.
  virtual void OnDone(bool ok) = 0;
};

// Any thread.
class IoLoop {
 public:
  IoLoop();  // For clients only.
  // Of a server too, which has ended by the time of Stop.
  explicit IoLoop(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  ~IoLoop();  // Stops.
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  grpc::CompletionQueue* queue() { return queue_.get(); }
  grpc::ServerCompletionQueue* server_queue() { return server_queue_; }  // Null without server.

  // Whether this is the loop's thread, which must not wait for what runs on it.
  bool OnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Cancels those of the open calls of a server's end (ServedContext) of which `whom` says so, and
  // says how many. `whom` must not wait, nor call the loop.
  size_t CancelServed(const std::function<bool(const grpc::ServerContext&)>& whom);

  // Waits until no IoCall of a server's end is left. Not from the loop's thread.
  void AwaitServed();
  // Waits until no IoCall is left, then ends the thread. Not from the loop's thread.
  void Stop();

 private:
  friend class IoCall;
  friend class ServedContext;

  void Run();
  // `calls`: how many more, of which `served` are of the server's end.
  void Count(int calls, int served);

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  grpc::ServerCompletionQueue* const server_queue_;
  Mutex mutex_;
  CondVar changed_;
  int calls_ STRATA_GUARDED_BY(mutex_) = 0;
  int served_ STRATA_GUARDED_BY(mutex_) = 0;
  bool stopped_ STRATA_GUARDED_BY(mutex_) = false;
  Mutex contexts_mutex_;
  std::set<grpc::ServerContext*> contexts_ STRATA_GUARDED_BY(contexts_mutex_);
  std::thread thread_;  // Last: it uses the others.
};

// Lists a call with its loop, from when it was accepted until this goes away, before the context.
class ServedContext {
 public:
  ServedContext(IoLoop* loop, grpc::ServerContext* context) : loop_(loop), context_(context) {}
  ~ServedContext();
  ServedContext(const ServedContext&) = delete;
  ServedContext& operator=(const ServedContext&) = delete;
  void Accepted();

 private:
  IoLoop* const loop_;
  grpc::ServerContext* const context_;
  bool listed_ = false;
};

// A call on a loop, at either end. gRPC owns it while operations are under way, since their tags
// come in any case; it ends after the last one's. Begins with one reference of its own, which the
// last operation takes over (Finish, at either end).
class IoCall {
 public:
  enum class Side { kClient, kServer };

  IoCall(const IoCall&) = delete;
  IoCall& operator=(const IoCall&) = delete;

 protected:
  // One kind of operation, under way once at a time.
  class Op : public IoTag {
   public:
    Op(IoCall* call, std::function<void(bool ok)> done) : call_(call), done_(std::move(done)) {}
    void* tag() { return static_cast<IoTag*>(this); }
    void OnDone(bool ok) override;

   private:
    IoCall* const call_;
    const std::function<void(bool ok)> done_;
  };

  IoCall(IoLoop* loop, Side side);  // `loop` outlives the call.
  virtual ~IoCall();

  IoLoop* loop() const { return loop_; }

  // To be called before an operation starts, but the last one. False once the call has ended: then
  // it must not start. Any thread.
  bool Begin();
  // One reference is not needed any more: of its own where no last operation comes, or of Begin
  // where none was started. May delete the call.
  void End();

  // Everything has ended. On the loop's thread, or that of the last End; may delete the call.
  virtual void OnEnd() = 0;

 private:
  IoLoop* const loop_;
  const Side side_;
  std::atomic<int> under_way_ = 1;
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_IO_LOOP_H_
