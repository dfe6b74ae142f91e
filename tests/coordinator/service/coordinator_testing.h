// A Coordinator without gRPC services around it: workers are channels that a test reads and speaks
// for, time and the store are the test's.
#ifndef STRATA_TESTS_COORDINATOR_SERVICE_COORDINATOR_TESTING_H_
#define STRATA_TESTS_COORDINATOR_SERVICE_COORDINATOR_TESTING_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/io_loop.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/process/coordinator.h"
#include "coordinator/store/state_store.h"
#include "tests/eventually.h"
#include "tests/golden.h"

namespace strata::testing {

// Stands still until it is told.
class TestClock : public Clock {
 public:
  TimePoint Now() const override { return nanoseconds(now_.load()); }
  void Advance(nanoseconds by) { now_ += by.count(); }

 private:
  std::atomic<int64_t> now_ = std::chrono::nanoseconds(std::chrono::hours(1)).count();
};

// A store in memory whose changes fail while `full` is set, as on a disk without room, and wait
// while it hangs, as for a disk that is busy.
class FailingStore : public StateStore {
 public:
  std::atomic<bool> full = false;
  std::atomic<bool> hangs = false;
  std::atomic<int> waiting = 0;  // Changes that do.

  absl::StatusOr<uint64_t> RaiseTerm() override { return store_->RaiseTerm(); }
  absl::StatusOr<std::string> ClusterId() override { return store_->ClusterId(); }
  absl::Status SaveModel(const StoredModel& model) override {
    return Change() ? Full() : store_->SaveModel(model);
  }
  absl::StatusOr<StoredModel> GetModel(std::string_view name) override {
    return store_->GetModel(name);
  }
  absl::StatusOr<std::vector<StoredModel>> ListModels() override { return store_->ListModels(); }
  absl::Status RemoveModel(std::string_view name) override {
    return Change() ? Full() : store_->RemoveModel(name);
  }
  absl::StatusOr<uint64_t> NextDeploymentId() override {
    (void)Change();
    return store_->NextDeploymentId();
  }
  absl::Status SaveDeployment(const StoredDeployment& deployment) override {
    return Change() ? Full() : store_->SaveDeployment(deployment);
  }
  absl::Status ReplaceDeployment(uint64_t old, const StoredDeployment& deployment) override {
    return Change() ? Full() : store_->ReplaceDeployment(old, deployment);
  }
  absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() override {
    return store_->ListDeployments();
  }
  absl::Status RemoveDeployment(uint64_t deployment) override {
    return Change() ? Full() : store_->RemoveDeployment(deployment);
  }
  absl::Status SaveNode(std::string_view name, const v1::NodeInfo& info, bool draining) override {
    return Change() ? Full() : store_->SaveNode(name, info, draining);
  }
  absl::StatusOr<std::vector<StoredNode>> ListNodes() override { return store_->ListNodes(); }
  absl::Status RemoveNode(std::string_view name) override {
    return Change() ? Full() : store_->RemoveNode(name);
  }
  absl::Status RemoveNodes(const std::vector<std::string>& names) override {
    return Change() ? Full() : store_->RemoveNodes(names);
  }
  absl::Status SaveKey(const StoredKey& key) override {
    return Change() ? Full() : store_->SaveKey(key);
  }
  absl::StatusOr<std::vector<StoredKey>> ListKeys() override { return store_->ListKeys(); }
  absl::Status SetSetting(std::string_view key, std::string_view value) override {
    return Change() ? Full() : store_->SetSetting(key, value);
  }
  absl::StatusOr<std::optional<std::string>> GetSetting(std::string_view key) override {
    return store_->GetSetting(key);
  }

 private:
  // Whether it fails.
  bool Change() {
    ++waiting;
    while (hangs) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    --waiting;
    return full;
  }
  static absl::Status Full() {
    return Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", "no room left on the disk");
  }

  const std::unique_ptr<StateStore> store_ = MakeMemoryStore(std::string(32, 'c'));
};

inline v1::NodeInfo NodeNamed(const std::string& name, uint64_t incarnation,
                              const std::string& address) {
  v1::NodeInfo info;
  info.set_name(name);
  info.set_incarnation(incarnation);
  info.set_address(address);
  info.set_backend("cpu");
  info.set_device("cpu");
  info.set_numerics("cpu-2");
  info.set_threads(1);
  info.set_memory_bytes(uint64_t{4} << 30);
  info.set_fixed_bytes(uint64_t{64} << 20);
  info.set_read_bytes_per_s(1e10);
  info.set_flops_per_s(1e11);
  return info;
}

// A worker's end of a control stream, and the loopback address where its stages are dialled. It
// accepts links and answers no step.
class TestWorker : private LinkHandler {
 public:
  TestWorker(Coordinator* coordinator, std::string name, uint64_t incarnation)
      : coordinator_(coordinator), name_(std::move(name)), incarnation_(incarnation) {
    auto server = RpcServer::Start(Transport::Make({}).value(), "127.0.0.1:0", {&links_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~TestWorker() override {
    links_.Shutdown();
    server_->Shutdown(std::chrono::milliseconds(1000));
  }

  const std::string& name() const { return name_; }

  absl::Status Join() {
    channel_ = std::make_shared<NodeChannel>();
    return coordinator_->membership()
        ->Join(NodeNamed(name_, incarnation_, server_->address()), {0.1, 1e9}, channel_)
        .status();
  }
  // Its control stream ends.
  void Leave() { coordinator_->membership()->OnLeave(name_, incarnation_, channel_); }

  void Say(v1::WorkerMessage message) {
    std::promise<void> done;
    coordinator_->membership()->OnMessage(name_, incarnation_, std::move(message),
                                          [&] { done.set_value(); });
    done.get_future().wait();
  }
  void SayHeartbeat() {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_term(1);
    Say(std::move(message));
  }
  // What a measurement of the link to `peer` gave; `reason` empty: it works.
  void SayMeasured(const std::string& peer, uint64_t incarnation, const std::string& reason) {
    v1::WorkerMessage message;
    v1::PeerMeasured* measured = message.mutable_peer_measured();
    measured->set_node(peer);
    measured->set_incarnation(incarnation);
    measured->set_latency_ms(0.1);
    measured->set_bytes_per_s(1e9);
    if (!reason.empty()) {
      *measured->mutable_error() =
          Error(absl::StatusCode::kUnavailable, reason, "it does not answer").Detail();
    }
    Say(std::move(message));
  }
  void SayLoaded(const v1::Load& load) {
    v1::WorkerMessage message;
    message.mutable_load_progress()->set_deployment(load.deployment());
    message.mutable_load_progress()->set_epoch(load.epoch());
    message.mutable_load_progress()->set_phase(v1::LoadProgress::PHASE_READY);
    Say(std::move(message));
  }
  void SayFenced(const v1::Fence& fence) {
    v1::WorkerMessage message;
    message.mutable_fence_ack()->set_deployment(fence.deployment());
    message.mutable_fence_ack()->set_epoch(fence.epoch());
    Say(std::move(message));
  }

  // All that the coordinator said since the last Take.
  std::vector<v1::CoordinatorMessage> Take() {
    std::vector<v1::CoordinatorMessage> all;
    EXPECT_FALSE(channel_->closed());
    while (auto next = channel_->TryNext()) {
      all.push_back(*std::move(next));
    }
    return all;
  }
  // The messages of one kind among them.
  std::vector<v1::CoordinatorMessage> Take(v1::CoordinatorMessage::KindCase kind) {
    std::vector<v1::CoordinatorMessage> some;
    for (v1::CoordinatorMessage& message : Take()) {
      if (message.kind_case() == kind) some.push_back(std::move(message));
    }
    return some;
  }

  // Does what it was told to load and fence until there is nothing more to do.
  void ObeyLoads() {
    for (const v1::CoordinatorMessage& message : Take()) {
      if (message.has_load()) {
        last_load_ = message.load();
        SayLoaded(message.load());
        ObeyLoads();
      } else if (message.has_fence()) {
        SayFenced(message.fence());
      }
    }
  }
  const v1::Load& last_load() const { return last_load_; }

 private:
  class Sink : public LinkSink {
   public:
    absl::Status OnStep(StepMessage) override { return absl::OkStatus(); }
    void OnClosed(const absl::Status&) override {}
  };

  Identity identity() const override { return {name_, incarnation_}; }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen&, const std::string&,
                                                   std::shared_ptr<InboundLink>) override {
    return std::make_shared<Sink>();
  }

  Coordinator* const coordinator_;
  const std::string name_;
  const uint64_t incarnation_;
  LinkService links_{this, {}};
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<NodeChannel> channel_;
  v1::Load last_load_;
};

using strata::Eventually;

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : models_(std::make_unique<Models>(&store_, &blobs_)) {}
  ~CoordinatorTest() override { coordinator_.reset(); }

  // Also again: a new process over the same store.
  void Start(CoordinatorOptions options = {}) {
    coordinator_.reset();
    models_ = std::make_unique<Models>(&store_, &blobs_);
    ASSERT_TRUE(models_->Restore().ok());
    coordinator_ = std::make_unique<Coordinator>(options, &transport_, &clock_, &store_,
                                                 models_.get(), *store_.RaiseTerm(), "c");
    coordinator_->membership()->OnServing(&link_loop_);
    ASSERT_TRUE(coordinator_->Start().ok());
  }

  void AddModel(const std::string& name) {
    const auto added = models_->Add(GoldenPath("models/llama"), name, "path",
                                    [](uint64_t, uint64_t) { return true; });
    ASSERT_TRUE(added.ok()) << added.status();
  }

  // Loads `name` on `worker` alone and waits until it serves.
  void LoadOn(TestWorker* worker, const std::string& name) {
    v1::LoadOptions options;
    options.add_nodes(worker->name());
    options.set_context(256);
    const auto plan = coordinator_->loads()->Load(name, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    worker->ObeyLoads();
    ASSERT_TRUE(Eventually([&] { return StateOf(name) == "ready"; })) << StateOf(name);
  }

  std::string StateOf(const std::string& model) {
    const auto described = coordinator_->report()->GetModel(model);
    return described.ok() ? described->state() : ReasonOf(described.status());
  }
  std::string NodeState(const std::string& node) {
    const auto described = coordinator_->nodes()->Get(node);
    return described.ok() ? described->state() : ReasonOf(described.status());
  }

  // Runs `f` on the loop and waits for it.
  void OnLoop(const std::function<void()>& f) {
    auto ran = std::make_shared<std::promise<void>>();
    coordinator_->PostToLoop([f, ran] {
      f();
      ran->set_value();
    });
    ran->get_future().wait();
  }
  // Waits for a tick that began after this call.
  void Tick() {
    for (int i = 0; i < 2; ++i) {
      OnLoop([] {});
    }
  }

  TestClock clock_;
  FailingStore store_;
  BlobStore blobs_;
  IoLoop link_loop_;
  const Transport transport_ = Transport::Make({}).value();
  std::unique_ptr<Models> models_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_SERVICE_COORDINATOR_TESTING_H_
