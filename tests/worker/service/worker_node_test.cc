// A worker against a coordinator that does what the test says, over gRPC, with the CPU backend and
// a golden model.
#include "worker/service/worker_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "common/checkpoint/checkpoint.h"
#include "common/rpc/link.h"
#include "tests/golden.h"
#include "tests/worker/runner/chain.h"
#include "tests/worker/service/fake_coordinator.h"
#include "worker/service/bench_weights.h"
#include "worker/service/control_client.h"
#include "worker/service/grpc_blob_client.h"
#include "worker/service/grpc_link_dialer.h"
#include "worker/weights/weight_cache.h"

namespace strata {
namespace {

using std::chrono::seconds;
using testing::FakeCoordinator;
using ::testing::HasSubstr;

constexpr uint64_t kDeployment = 21;
constexpr char kModelDigest[] = "digest of the model";
constexpr char kClassName[] = "cpu-1/w=bf16,head=bf16,act=f32/kv=f32";

// One worker of this process, as main puts it together.
class Worker {
 public:
  Worker(const std::string& name, const std::string& dir, const FakeCoordinator& coordinator,
         uint64_t memory_bytes = uint64_t{1} << 30)
      : transport_(coordinator.transport()),
        cache_(*WeightCache::Open(dir, 0)),
        fetcher_(cache_.get(), {}),
        blobs_(transport_, coordinator.address()),
        dialer_(transport_) {
    BackendOptions backend;
    backend.threads = 1;
    backend_ = *MakeCpuBackend(backend);
    WorkerNodeParts parts;
    parts.backend = backend_.get();
    parts.cache = cache_.get();
    parts.fetcher = &fetcher_;
    parts.blobs = &blobs_;
    parts.dialer = &dialer_;
    parts.clock = &clock_;
    parts.measure = [this](const v1::MeasurePeer& peer) {
      v1::PeerMeasured measured;
      auto speed = MeasureLink(transport_, peer.address(), peer.node(), peer.incarnation(),
                               milliseconds(3000));
      if (speed.ok()) {
        measured.set_latency_ms(speed->latency_ms);
        measured.set_bytes_per_s(speed->bytes_per_s);
      } else {
        *measured.mutable_error() = DetailOf(speed.status());
      }
      return measured;
    };
    links_ = std::make_unique<LinkService>(&handler_, LinkServiceOptions());
    server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {links_->service()});
    WorkerNodeOptions options;
    options.name = name;
    options.address = server_->address();
    options.coordinator = coordinator.address();
    options.memory_bytes = memory_bytes;
    options.fixed_bytes = 1 << 20;
    node_ = std::make_unique<WorkerNode>(options, parts);
    handler_.node = node_.get();
    control_ = std::make_unique<ControlClient>(transport_, coordinator.address(), node_.get());
    thread_ = std::thread([this] { status_ = control_->Run(); });
  }
  ~Worker() { Stop().IgnoreError(); }

  // How Run ended.
  absl::Status Stop() {
    control_->Stop();
    if (thread_.joinable()) {
      thread_.join();
    }
    links_->Shutdown();
    server_->Shutdown(milliseconds(1000));
    return status_;
  }
  absl::Status Join() {
    thread_.join();
    return status_;
  }
  uint64_t fetched_bytes() const { return fetcher_.fetched_bytes(); }

 private:
  struct Handler : public LinkHandler {
    Identity identity() const override { return node->identity(); }
    absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open,
                                                     const std::string& peer,
                                                     std::shared_ptr<InboundLink> link) override {
      return node->OnOpen(open, peer, std::move(link));
    }
    WorkerNode* node = nullptr;
  };

  const Transport transport_;
  const SystemClock clock_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<WeightCache> cache_;
  BlobFetcher fetcher_;
  GrpcBlobClient blobs_;
  GrpcLinkDialer dialer_;
  Handler handler_;
  std::unique_ptr<LinkService> links_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<WorkerNode> node_;
  std::unique_ptr<ControlClient> control_;
  std::thread thread_;
  absl::Status status_;
};

class WorkerNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir()) /
           ("strata-node-" +
            std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(dir_);
    auto checkpoint = OpenCheckpoint(testing::GoldenPath("models/llama"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    auto weights = CheckpointWeights::Open(checkpoint_);
    ASSERT_TRUE(weights.ok()) << weights.status();
    weights_ = *std::move(weights);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Dir(const std::string& name) const { return (dir_ / name).string(); }

  std::string BytesOf(const std::string& tensor) const {
    const auto view = weights_->Find(tensor);
    EXPECT_TRUE(view.ok()) << view.status();
    return {reinterpret_cast<const char*>(view->data), view->bytes};
  }

  // The Load of one stage, its blobs added to the coordinator. `*bytes`: of its tensors.
  v1::CoordinatorMessage LoadOf(FakeCoordinator* coordinator, uint32_t stage, uint32_t stages,
                                uint64_t epoch, uint64_t* bytes = nullptr) {
    const auto layers = static_cast<uint32_t>(checkpoint_.spec.layers.size());
    v1::CoordinatorMessage message;
    v1::Load* load = message.mutable_load();
    load->set_deployment(kDeployment);
    load->set_epoch(epoch);
    load->set_model("llama");
    load->set_config_json(checkpoint_.config_json);
    load->set_weights_digest(kModelDigest);
    load->set_stage(stage);
    load->set_stage_count(stages);
    load->set_first_layer(layers * stage / stages);
    load->set_last_layer(layers * (stage + 1) / stages - 1);
    std::set<std::string> counted;
    for (const StageTensor& tensor :
         TensorsOf(checkpoint_.spec, load->first_layer(), load->last_layer(), stage == 0,
                   stage + 1 == stages)) {
      const std::string data = BytesOf(tensor.name);
      coordinator->AddBlob(data);
      v1::TensorBlob* blob = load->add_tensors();
      blob->set_name(tensor.name);
      blob->set_dtype(DtypeName(checkpoint_.Find(tensor.name)->dtype));
      blob->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
      blob->set_sha256(Sha256Hex(data));
      blob->set_bytes(data.size());
      if (bytes != nullptr && counted.insert(blob->sha256()).second) {
        *bytes += data.size();
      }
    }
    const std::vector<float> rotary =
        MakeRotaryTables(checkpoint_.spec.layers[0].attention.rope, 128);
    const std::string tables(reinterpret_cast<const char*>(rotary.data()),
                             rotary.size() * sizeof(float));
    coordinator->AddBlob(tables);
    load->set_rotary_sha256(Sha256Hex(tables));
    load->set_rotary_bytes(tables.size());
    if (bytes != nullptr) {
      *bytes += tables.size();
    }
    load->set_context(128);
    load->add_kv_pages(32);
    load->set_kv_dtype(v1::KV_DTYPE_F32);
    load->set_max_batch_tokens(64);
    load->set_max_batch_items(8);
    load->set_max_in_flight(stages + 1);
    load->set_numerics_class(kClassName);
    load->set_step_timeout_ms(5000);
    if (stage + 1 < stages) {
      const v1::NodeInfo next = coordinator->Node("w" + std::to_string(stage + 1));
      load->set_next_node(next.name());
      load->set_next_incarnation(next.incarnation());
      load->set_next_address(next.address());
    } else {
      load->set_next_incarnation(FakeCoordinator::kIncarnation);
    }
    return message;
  }

  static v1::LoadProgress WaitLoaded(FakeCoordinator* coordinator, const std::string& node) {
    return coordinator
        ->Take(node,
               [](const v1::WorkerMessage& m) {
                 return m.load_progress().phase() == v1::LoadProgress::PHASE_READY ||
                        m.load_progress().phase() == v1::LoadProgress::PHASE_FAILED;
               })
        .load_progress();
  }

  static void Fence(FakeCoordinator* coordinator, const std::string& node, uint64_t epoch) {
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_deployment(kDeployment);
    message.mutable_fence()->set_epoch(epoch);
    coordinator->Send(node, message);
  }

  static v1::FenceAck WaitFenced(FakeCoordinator* coordinator, const std::string& node) {
    return coordinator->Take(node, [](const v1::WorkerMessage& m) { return m.has_fence_ack(); })
        .fence_ack();
  }

  absl::StatusOr<std::unique_ptr<LinkSender>> OpenFirst(FakeCoordinator* coordinator,
                                                        uint64_t epoch) {
    const v1::NodeInfo first = coordinator->Node("w0");
    LinkOptions options;
    options.address = first.address();
    options.open.set_from_incarnation(FakeCoordinator::kIncarnation);
    options.open.set_to_node("w0");
    options.open.set_to_incarnation(first.incarnation());
    options.open.set_deployment(kDeployment);
    options.open.set_epoch(epoch);
    return LinkSender::Open(coordinator->transport(), options, [](const absl::Status&) {});
  }

  // Greedy ids after a prompt, one token a step.
  static std::vector<uint32_t> Generate(FakeCoordinator* coordinator, LinkSender* link,
                                        uint64_t epoch, uint64_t generation,
                                        const std::vector<uint32_t>& prompt, size_t count,
                                        uint64_t* step) {
    std::vector<uint32_t> out;
    std::vector<uint32_t> next = prompt;
    Fingerprint fingerprint = FingerprintRoot(kDeployment, kModelDigest, kClassName, "", 0);
    uint32_t position = 0;
    while (out.size() < count) {
      StepMessage message;
      message.header.set_deployment(kDeployment);
      message.header.set_epoch(epoch);
      message.header.set_step(++*step);
      message.header.set_committed_step(*step - 1);
      message.header.set_rows(static_cast<uint32_t>(next.size()));
      v1::StepItem* item = message.header.add_items();
      *item->mutable_sequence() = testing::Name("golden", generation);
      item->set_position(position);
      item->set_fingerprint(fingerprint);
      item->set_sample(true);
      if (position == 0) {
        *item->mutable_params() = testing::Greedy();
        item->mutable_params()->set_prompt_length(static_cast<uint32_t>(prompt.size()));
      }
      for (const uint32_t id : next) {
        item->add_token_ids(id);
        fingerprint = FingerprintLink(fingerprint, id);
      }
      position += static_cast<uint32_t>(next.size());
      EXPECT_TRUE(link->Send(std::move(message)).ok());
      const ResultMessage result = coordinator->TakeResult();
      if (result.header.items_size() != 1 || result.header.items(0).tokens_size() != 1) {
        ADD_FAILURE() << result.header.DebugString();
        return out;
      }
      out.push_back(result.header.items(0).tokens(0).token_id());
      next = {out.back()};
    }
    return out;
  }

  // Case p39 of the model: its prompt and the ids that follow.
  static void GoldenCase(std::vector<uint32_t>* prompt, std::vector<uint32_t>* greedy) {
    std::string text = testing::ReadFileOrFail(testing::GoldenPath("models/llama/cases.json"));
    text.erase(0, std::min(text.size(), text.find("\"p39\"")));
    const auto read = [&](const std::string& key, std::vector<uint32_t>* out) {
      size_t at = text.find('[', text.find("\"" + key + "\""));
      const size_t end = text.find(']', at);
      while (at < end) {
        at = text.find_first_of("0123456789]", at);
        if (at >= end) {
          break;
        }
        size_t used = 0;
        out->push_back(static_cast<uint32_t>(std::stoul(text.substr(at, 12), &used)));
        at += used;
      }
    };
    read("prompt_ids", prompt);
    read("greedy_ids", greedy);
  }

  std::filesystem::path dir_;
  Checkpoint checkpoint_;
  std::unique_ptr<CheckpointWeights> weights_;
};

TEST_F(WorkerNodeTest, TwoWorkersLoadTheirOwnBytesAndGiveTheGoldenIds) {
  FakeCoordinator coordinator;
  std::vector<uint32_t> prompt;
  std::vector<uint32_t> greedy;
  GoldenCase(&prompt, &greedy);
  ASSERT_EQ(prompt.size(), 39u);
  ASSERT_EQ(greedy.size(), 24u);
  for (const bool warm : {false, true}) {
    Worker w0("w0", Dir("w0"), coordinator);
    Worker w1("w1", Dir("w1"), coordinator);
    ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == (warm ? 4 : 2); }));
    if (!warm) {
      coordinator.BreakTransferAfter(3);
    }
    uint64_t bytes[2] = {0, 0};
    for (uint32_t stage = 0; stage < 2; ++stage) {
      coordinator.Send("w" + std::to_string(stage),
                       LoadOf(&coordinator, stage, 2, 3, &bytes[stage]));
    }
    for (uint32_t stage = 0; stage < 2; ++stage) {
      const v1::LoadProgress loaded = WaitLoaded(&coordinator, "w" + std::to_string(stage));
      ASSERT_EQ(loaded.phase(), v1::LoadProgress::PHASE_READY) << loaded.DebugString();
      EXPECT_EQ(loaded.epoch(), 3u);
      const Worker& worker = stage == 0 ? w0 : w1;
      EXPECT_EQ(worker.fetched_bytes(), warm ? 0 : bytes[stage]);
      EXPECT_EQ(loaded.fetched_bytes(), worker.fetched_bytes());
    }
    // The first stage is fenced first: the second has not heard of the epoch yet.
    Fence(&coordinator, "w0", 3);
    std::this_thread::sleep_for(milliseconds(100));
    Fence(&coordinator, "w1", 3);
    for (const char* node : {"w0", "w1"}) {
      const v1::FenceAck ack = WaitFenced(&coordinator, node);
      ASSERT_FALSE(ack.has_error()) << ack.DebugString();
      EXPECT_EQ(ack.epoch(), 3u);
    }
    auto link = OpenFirst(&coordinator, 3);
    ASSERT_TRUE(link.ok()) << link.status();
    uint64_t step = 0;
    EXPECT_EQ(Generate(&coordinator, link->get(), 3, 1, prompt, 24, &step), greedy);
    v1::CoordinatorMessage unload;
    unload.mutable_unload()->set_deployment(kDeployment);
    coordinator.Send("w1", unload);
    coordinator.Take("w1", [](const v1::WorkerMessage& m) { return m.has_unload_done(); });
    // Its neighbour reports that the link broke.
    const v1::WorkerMessage fault =
        coordinator.Take("w0", [](const v1::WorkerMessage& m) { return m.has_link_fault(); });
    EXPECT_EQ(fault.link_fault().deployment(), kDeployment);
    EXPECT_THAT(fault.link_fault().error().message(), HasSubstr("w1"));
    EXPECT_TRUE(w0.Stop().ok());
    EXPECT_TRUE(w1.Stop().ok());
  }
}

TEST_F(WorkerNodeTest, HeartbeatsCarrySequencesAndBytes) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const v1::NodeInfo info = coordinator.Node("w0");
  EXPECT_EQ(info.backend(), "cpu");
  EXPECT_EQ(info.numerics(), "cpu-1");
  EXPECT_EQ(info.memory_bytes(), uint64_t{1} << 30);
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 9));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  Fence(&coordinator, "w0", 9);
  ASSERT_FALSE(WaitFenced(&coordinator, "w0").has_error());
  auto link = OpenFirst(&coordinator, 9);
  ASSERT_TRUE(link.ok()) << link.status();
  uint64_t step = 0;
  Generate(&coordinator, link->get(), 9, 1, {1, 2, 3}, 2, &step);
  const auto deadline = std::chrono::steady_clock::now() + seconds(10);
  while (coordinator.HeartbeatOf("w0").sequences() != 1 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  const v1::Heartbeat heartbeat = coordinator.HeartbeatOf("w0");
  EXPECT_EQ(heartbeat.sequences(), 1u);
  EXPECT_EQ(heartbeat.term(), 5u);
  EXPECT_GT(heartbeat.cache_bytes(), 0u);
  EXPECT_EQ(heartbeat.cache_bytes(), heartbeat.fetched_bytes());
  EXPECT_GT(heartbeat.used_bytes(), 0u);
}

TEST_F(WorkerNodeTest, WhatCannotBeLoadedFailsTyped) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator, /*memory_bytes=*/uint64_t{64} << 20);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const auto failure = [&](const std::function<void(v1::Load*)>& change) {
    v1::CoordinatorMessage message = LoadOf(&coordinator, 0, 1, 9);
    change(message.mutable_load());
    coordinator.Send("w0", message);
    const v1::LoadProgress progress = WaitLoaded(&coordinator, "w0");
    EXPECT_EQ(progress.phase(), v1::LoadProgress::PHASE_FAILED);
    EXPECT_EQ(progress.error().node(), "w0");
    return progress.error();
  };
  EXPECT_EQ(failure([](v1::Load* load) {
              load->set_numerics_class("cpu-2/w=bf16,head=bf16,act=f32/kv=f32");
            }).reason(),
            "NUMERICS_CLASS");
  EXPECT_EQ(failure([](v1::Load* load) {
              load->set_numerics_class("cpu-1/w=f16,head=f16,act=f32/kv=f32");
            }).reason(),
            "NUMERICS_CLASS");
  EXPECT_EQ(failure([](v1::Load* load) { load->set_kv_dtype(v1::KV_DTYPE_F16); }).reason(),
            "NUMERICS_CLASS");
  EXPECT_THAT(failure([](v1::Load* load) { load->set_quantize(v1::QUANTIZE_INT4); }).message(),
              HasSubstr("--quantize"));
  EXPECT_THAT(failure([](v1::Load* load) { load->set_kv_dtype(v1::KV_DTYPE_BF16); }).message(),
              HasSubstr("bf16"));
  EXPECT_EQ(failure([](v1::Load* load) { load->set_kv_pages(0, 1'000'000); }).reason(),
            "MEMORY_LIMIT");
  EXPECT_EQ(failure([](v1::Load* load) { load->set_kv_pages(0, uint64_t{1} << 60); }).reason(),
            "BAD_LOAD");
  EXPECT_THAT(failure([](v1::Load* load) { load->mutable_tensors()->RemoveLast(); }).message(),
              HasSubstr("is missing"));
  EXPECT_THAT(failure([](v1::Load* load) { load->set_rotary_bytes(4); }).message(),
              HasSubstr("rotary"));
  EXPECT_EQ(failure([](v1::Load* load) { load->set_last_layer(1000); }).reason(), "BAD_LOAD");
  EXPECT_EQ(failure([](v1::Load* load) { load->mutable_tensors(0)->set_bytes(3); }).reason(),
            "BAD_TENSOR");
  EXPECT_EQ(failure([](v1::Load* load) {
              load->mutable_tensors(0)->set_sha256(std::string(64, 'a'));
            }).reason(),
            "NO_BLOB");
  EXPECT_NE(failure([](v1::Load* load) { load->set_config_json("{"); }).message(), "");
  // Nothing of this is in the way of a good one.
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 10));
  EXPECT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
}

TEST_F(WorkerNodeTest, UnknownDeploymentsAndStrangersAreRefused) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  Fence(&coordinator, "w0", 4);
  EXPECT_EQ(WaitFenced(&coordinator, "w0").error().reason(), "NO_DEPLOYMENT");
  EXPECT_EQ(ReasonOf(OpenFirst(&coordinator, 4).status()), "NO_DEPLOYMENT");
  const v1::NodeInfo info = coordinator.Node("w0");
  v1::CoordinatorMessage measure;
  measure.mutable_measure_peer()->set_node("w0");
  measure.mutable_measure_peer()->set_incarnation(info.incarnation());
  measure.mutable_measure_peer()->set_address(info.address());
  coordinator.Send("w0", measure);
  const auto is_measured = [](const v1::WorkerMessage& m) { return m.has_peer_measured(); };
  v1::PeerMeasured measured = coordinator.Take("w0", is_measured).peer_measured();
  EXPECT_FALSE(measured.has_error()) << measured.DebugString();
  EXPECT_GT(measured.bytes_per_s(), 0);
  measure.mutable_measure_peer()->set_incarnation(info.incarnation() + 1);
  coordinator.Send("w0", measure);
  measured = coordinator.Take("w0", is_measured).peer_measured();
  EXPECT_EQ(measured.error().reason(), "WRONG_NODE");
  EXPECT_EQ(measured.node(), "w0");
}

TEST_F(WorkerNodeTest, ALapsedLeaseDropsEverythingAndBeginsANewLife) {
  FakeCoordinator coordinator("127.0.0.1:0", /*first_lease_ms=*/3000);
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const uint64_t first = coordinator.Node("w0").incarnation();
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 9));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  coordinator.SetRenews(false);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ >= 2; }));
  coordinator.SetRenews(true);
  EXPECT_NE(coordinator.Node("w0").incarnation(), first);
  // The stage of the life before is gone.
  Fence(&coordinator, "w0", 10);
  EXPECT_EQ(WaitFenced(&coordinator, "w0").error().reason(), "NO_DEPLOYMENT");
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 11));
  EXPECT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
}

TEST_F(WorkerNodeTest, ARestartedCoordinatorIsJoinedAgain) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const std::string address = coordinator->address();
  Worker w0("w0", Dir("w0"), *coordinator);
  ASSERT_TRUE(coordinator->Wait([&] { return coordinator->registrations_ == 1; }));
  const uint64_t first = coordinator->Node("w0").incarnation();
  coordinator = nullptr;
  coordinator = std::make_unique<FakeCoordinator>(address);
  ASSERT_TRUE(coordinator->Wait([&] { return coordinator->registrations_ == 1; }));
  EXPECT_NE(coordinator->Node("w0").incarnation(), first);
  EXPECT_TRUE(w0.Stop().ok());
}

TEST_F(WorkerNodeTest, ARefusalOfTheFirstRegistrationIsFinalALaterOneIsNot) {
  FakeCoordinator coordinator("127.0.0.1:0", /*first_lease_ms=*/3000);
  const absl::Status taken =
      Error(absl::StatusCode::kAlreadyExists, "NAME_TAKEN", "a live node has the name w0")
          .Hint("give another name with --name");
  coordinator.SetRefusal(taken);
  {
    Worker w0("w0", Dir("w0"), coordinator);
    const absl::Status status = w0.Join();
    EXPECT_EQ(ReasonOf(status), "NAME_TAKEN");
    EXPECT_THAT(Describe(status), HasSubstr("--name"));
  }
  coordinator.SetRefusal(absl::OkStatus());
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  coordinator.SetRefusal(taken);
  coordinator.SetRenews(false);
  // The lease lapses, and the name is refused: no reason to give up now.
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.refusals_ >= 3; }));
  coordinator.SetRenews(true);
  coordinator.SetRefusal(absl::OkStatus());
  EXPECT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ >= 2; }));
}

}  // namespace
}  // namespace strata
