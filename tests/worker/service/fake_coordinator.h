// A coordinator that does what a test says: hosts membership, blobs and the results' link.
#ifndef STRATA_TESTS_WORKER_SERVICE_FAKE_COORDINATOR_H_
#define STRATA_TESTS_WORKER_SERVICE_FAKE_COORDINATOR_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/mutex.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/link_service.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "strata/v1/membership.grpc.pb.h"
#include "tests/eventually.h"

namespace strata::testing {

class FakeCoordinator : public IoService, public LinkHandler {
 public:
  static constexpr uint64_t kIncarnation = 77;

  explicit FakeCoordinator(const std::string& address = "127.0.0.1:0")
      : transport_(*Transport::Make({})),
        links_(this, {.open_timeout = kGiveUpAfter, .results = true}) {
    auto server = RpcServer::Start(transport_, address, {this, &links_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~FakeCoordinator() override {
    {
      MutexLock lock(&mutex_);
      for (CallContext* context : contexts_) {
        context->EndWith(grpc::Status(grpc::StatusCode::CANCELLED, "the coordinator ends"));
      }
    }
    links_.Shutdown();
    server_->Shutdown(std::chrono::milliseconds(2000));
  }

  const std::string& address() const { return server_->address(); }
  const Transport& transport() const { return transport_; }
  IoLoop* loop() { return server_->loop(); }

  void AddBlob(const std::string& bytes) {
    MutexLock lock(&mutex_);
    blobs_[Sha256Hex(bytes)] = bytes;
  }

  // IoService.
  grpc::Service* NewService() override {
    service_ = std::make_unique<Async>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&Async::RequestControl, std::bind_front(&FakeCoordinator::Control, this));
    calls.Serve(&Async::RequestFetchBlob, std::bind_front(&FakeCoordinator::FetchBlob, this));
  }

  grpc::Status Control(CallContext* context,
                       CallStream<v1::CoordinatorMessage, v1::WorkerMessage>* stream) {
    v1::WorkerMessage message;
    if (!stream->Read(&message) || !message.has_register_()) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no Register");
    }
    const v1::NodeInfo info = message.register_();
    {
      MutexLock lock(&mutex_);
      if (!refuse_.ok()) {
        ++refusals_;
        changed_.NotifyAll();
        return ToGrpc(refuse_);
      }
      contexts_.push_back(context);
      nodes_[info.name()] = info;
      ++registrations_;
      changed_.NotifyAll();
    }
    if (!Wait([&] { return answers_; })) {
      return grpc::Status(grpc::StatusCode::INTERNAL, "the test lets nobody join");
    }
    stream->Write(Registered(kGiveUpAfter));
    std::thread writer([&] { WriteLoop(context, info, stream); });
    while (stream->Read(&message)) {
      MutexLock lock(&mutex_);
      if (message.has_heartbeat()) {
        heartbeats_[info.name()] = message.heartbeat();
        if (renews_) {
          v1::CoordinatorMessage renewed;
          renewed.mutable_lease_renewed()->set_term(5);
          outbox_[info.name()].push_back(renewed);
        }
      } else {
        said_[info.name()].push_back(message);
      }
      changed_.NotifyAll();
    }
    {
      MutexLock lock(&mutex_);
      contexts_.erase(std::find(contexts_.begin(), contexts_.end(), context));
      changed_.NotifyAll();
    }
    writer.join();
    return grpc::Status::OK;
  }

  grpc::Status FetchBlob(CallContext*, const v1::FetchBlobRequest* request,
                         CallWriter<v1::FetchBlobChunk>* writer) {
    std::string bytes;
    {
      MutexLock lock(&mutex_);
      const auto it = blobs_.find(request->sha256());
      if (it == blobs_.end()) {
        return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_BLOB", "no such blob"));
      }
      bytes = it->second.substr(request->offset());
    }
    v1::FetchBlobChunk chunk;
    for (size_t at = 0; at < bytes.size(); at += 100'000) {
      chunk.set_data(bytes.substr(at, 100'000));
      {
        MutexLock lock(&mutex_);
        served_bytes_ += chunk.data().size();
        if (break_transfers_ > 0 && --break_transfers_ == 0) {
          return grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut by the test");
        }
      }
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  // LinkHandler.
  Identity identity() const override {
    ++asked_;
    // Another name is no coordinator: as if nobody answered.
    return {silent_ ? "somebody" : "", incarnation_};
  }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen&, const std::string&,
                                                   std::shared_ptr<InboundLink>) override {
    return std::make_shared<Sink>(this);
  }

  void Send(const std::string& node, v1::CoordinatorMessage message) {
    MutexLock lock(&mutex_);
    outbox_[node].push_back(std::move(message));
    changed_.NotifyAll();
  }

  // Waits until `done`, which is called under the mutex.
  bool Wait(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kGiveUpAfter;
    MutexLock lock(&mutex_);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(20));
    }
    return true;
  }

  // Waits for a message of `node` that `is_it` picks, and takes it and all before it.
  v1::WorkerMessage Take(const std::string& node,
                         const std::function<bool(const v1::WorkerMessage&)>& is_it) {
    v1::WorkerMessage found;
    const bool in_time = Wait([&] {
      auto& said = said_[node];
      while (!said.empty()) {
        found = std::move(said.front());
        said.pop_front();
        if (is_it(found)) {
          return true;
        }
      }
      return false;
    });
    EXPECT_TRUE(in_time) << "node " << node << " did not say what was waited for";
    return found;
  }

  ResultMessage TakeResult() {
    ResultMessage result;
    EXPECT_TRUE(Wait([&] {
      if (results_.empty()) {
        return false;
      }
      result = std::move(results_.front());
      results_.pop_front();
      return true;
    }));
    return result;
  }

  v1::NodeInfo Node(const std::string& name) {
    MutexLock lock(&mutex_);
    return nodes_[name];
  }
  v1::Heartbeat HeartbeatOf(const std::string& name) {
    MutexLock lock(&mutex_);
    return heartbeats_[name];
  }

  // Whether a coordinator answers who asks, and as which process.
  std::atomic<bool> silent_ = false;
  std::atomic<uint64_t> incarnation_ = kIncarnation;
  mutable std::atomic<int> asked_ = 0;

  // Read and changed under `mutex_`, by Wait and these.
  int registrations_ = 0;
  int refusals_ = 0;
  // Shortens the node's lease, and renews none until SetRenews.
  void LetLapse(const std::string& node) {
    SetRenews(false);
    Send(node, Registered(std::chrono::milliseconds(200)));
  }
  void SetRenews(bool renews) {
    MutexLock lock(&mutex_);
    renews_ = renews;
  }
  // Whether registrations are answered; those that wait are, once they are again.
  void SetAnswers(bool answers) {
    MutexLock lock(&mutex_);
    answers_ = answers;
    changed_.NotifyAll();
  }
  void SetRefusal(const absl::Status& status) {
    MutexLock lock(&mutex_);
    refuse_ = status;
  }
  void BreakTransferAfter(int chunks) {
    MutexLock lock(&mutex_);
    break_transfers_ = chunks;
  }
  uint64_t served_bytes() {
    MutexLock lock(&mutex_);
    return served_bytes_;
  }

 private:
  using Async = v1::MembershipService::AsyncService;

  class Sink : public LinkSink {
   public:
    explicit Sink(FakeCoordinator* owner) : owner_(owner) {}
    absl::Status OnResult(ResultMessage message) override {
      MutexLock lock(&owner_->mutex_);
      owner_->results_.push_back(std::move(message));
      owner_->changed_.NotifyAll();
      return absl::OkStatus();
    }
    void OnClosed(const absl::Status&) override {}

   private:
    FakeCoordinator* const owner_;
  };

  static v1::CoordinatorMessage Registered(std::chrono::milliseconds lease) {
    v1::CoordinatorMessage message;
    message.mutable_registered()->set_term(5);
    message.mutable_registered()->set_lease_ms(static_cast<uint32_t>(lease.count()));
    message.mutable_registered()->set_heartbeat_ms(100);
    return message;
  }

  void WriteLoop(CallContext* context, const v1::NodeInfo& info,
                 CallStream<v1::CoordinatorMessage, v1::WorkerMessage>* stream) {
    while (true) {
      v1::CoordinatorMessage message;
      {
        MutexLock lock(&mutex_);
        auto& outbox = outbox_[info.name()];
        while (outbox.empty() &&
               std::find(contexts_.begin(), contexts_.end(), context) != contexts_.end()) {
          changed_.Wait(&mutex_);
        }
        if (std::find(contexts_.begin(), contexts_.end(), context) == contexts_.end()) {
          return;
        }
        message = std::move(outbox.front());
        outbox.pop_front();
      }
      stream->Write(message);
    }
  }

  const Transport transport_;
  LinkService links_;
  CallThreads threads_{{.threads = 64}};
  std::unique_ptr<Async> service_;
  std::unique_ptr<RpcServer> server_;

  Mutex mutex_;
  CondVar changed_;
  bool renews_ = true;
  bool answers_ = true;
  absl::Status refuse_;
  int break_transfers_ = 0;
  uint64_t served_bytes_ = 0;
  std::map<std::string, std::string> blobs_;
  std::map<std::string, v1::NodeInfo> nodes_;
  std::map<std::string, v1::Heartbeat> heartbeats_;
  std::map<std::string, std::deque<v1::CoordinatorMessage>> outbox_;
  std::map<std::string, std::deque<v1::WorkerMessage>> said_;
  std::deque<ResultMessage> results_;
  std::vector<CallContext*> contexts_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_SERVICE_FAKE_COORDINATOR_H_
