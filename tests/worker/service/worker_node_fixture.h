// A worker against a coordinator that does what the test says, over gRPC, with the CPU backend and
// a golden model.
#ifndef STRATA_TESTS_WORKER_SERVICE_WORKER_NODE_FIXTURE_H_
#define STRATA_TESTS_WORKER_SERVICE_WORKER_NODE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/rpc/link.h"
#include "tests/eventually.h"
#include "tests/golden.h"
#include "tests/worker/runner/chain.h"
#include "tests/worker/service/fake_coordinator.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/service/bench_weights.h"
#include "worker/service/control_client.h"
#include "worker/service/grpc_link_dialer.h"
#include "worker/service/grpc_weight_sources.h"
#include "worker/service/ranks_service.h"
#include "worker/service/worker_node.h"
#include "worker/weights/weight_cache.h"

namespace strata {

inline constexpr uint64_t kDeployment = 21;
inline constexpr char kModelDigest[] = "digest of the model";
inline constexpr char kClassName[] = "cpu-2/w=bf16,head=bf16,act=f32/kv=f32";

// A backend that tells `watch` of a load's progress, after whoever loads.
class WatchedBackend : public Backend {
 public:
  WatchedBackend(std::unique_ptr<Backend> backend, LoadProgressFn watch)
      : backend_(std::move(backend)), watch_(std::move(watch)) {}

  std::string name() const override { return backend_->name(); }
  std::string numerics() const override { return backend_->numerics(); }
  DeviceFacts facts() const override { return backend_->facts(); }
  absl::Status Supports(const StageSpec& spec) const override { return backend_->Supports(spec); }
  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    return backend_->Load(spec, weights, packed, [&](uint64_t done, uint64_t total) {
      progress(done, total);
      watch_(done, total);
    });
  }
  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    return backend_->MeasureSpeed(seconds, bytes);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  const LoadProgressFn watch_;
};

// One worker of this process, as main puts it together. `watch` may hold up its loads.
class Worker {
 public:
  Worker(const std::string& name, const std::string& dir,
         const testing::FakeCoordinator& coordinator, uint64_t memory_bytes = uint64_t{1} << 30,
         LoadProgressFn watch = nullptr, std::unique_ptr<Backend> backend = nullptr,
         uint64_t host_memory_bytes = 0)
      : transport_(coordinator.transport()),
        cache_(*WeightCache::Open(dir, 0)),
        fetcher_(cache_.get(), {}),
        sources_(transport_, coordinator.address(), [this] { return handler_.identity(); }),
        blobs_(&sources_, {}, [](const std::string&) {}) {
    links_ =
        std::make_unique<LinkService>(&handler_, LinkServiceOptions{.open_timeout = kGiveUpAfter});
    server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {links_.get(), &ranks_});
    dialer_ = std::make_unique<GrpcLinkDialer>(server_->loop(), transport_);
    backend_ = backend != nullptr ? std::move(backend) : *MakeCpuBackend({.threads = 1});
    if (watch != nullptr) {
      backend_ = std::make_unique<WatchedBackend>(std::move(backend_), std::move(watch));
    }
    WorkerNodeParts parts;
    parts.backend = backend_.get();
    parts.cache = cache_.get();
    parts.fetcher = &fetcher_;
    parts.blobs = &blobs_;
    parts.dialer = dialer_.get();
    parts.clock = &clock_;
    parts.ranks = {
        .host = "127.0.0.1",
        .ask = [this](const RankPeer& peer, uint64_t deployment, const RankToJoin& join) {
          return AskToJoin(transport_, peer, deployment, join, kGiveUpAfter);
        }};
    parts.give_up = [] { FAIL() << "a step hangs"; };
    parts.measure = [this](const v1::MeasurePeer& peer) {
      v1::PeerMeasured measured;
      auto speed =
          MeasureLink(transport_, peer.address(), peer.node(), peer.incarnation(), kGiveUpAfter);
      if (speed.ok()) {
        measured.set_latency_ms(speed->latency_ms);
        measured.set_bytes_per_s(speed->bytes_per_s);
      } else {
        *measured.mutable_error() = DetailOf(speed.status());
      }
      return measured;
    };
    WorkerNodeOptions options;
    options.name = name;
    options.address = server_->address();
    options.coordinator = coordinator.address();
    options.memory_bytes = memory_bytes;
    options.fixed_bytes = 1 << 20;
    options.host_memory_bytes = host_memory_bytes;
    node_ = std::make_unique<WorkerNode>(options, parts);
    handler_.node = node_.get();
    ranks_.Set([this](uint64_t deployment, uint64_t loaded_epoch) {
      return node_->SeatOf(deployment, loaded_epoch);
    });
    control_ = std::make_unique<ControlClient>(server_->loop(), transport_, coordinator.address(),
                                               node_.get());
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
  WorkerReport Report() const { return node_->Report(); }

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
  GrpcWeightSources sources_;
  SourcedBlobs blobs_;
  Handler handler_;
  RanksService ranks_{[this] { return handler_.identity(); }};
  std::unique_ptr<LinkService> links_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<GrpcLinkDialer> dialer_;
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
  v1::CoordinatorMessage LoadOf(testing::FakeCoordinator* coordinator, uint32_t stage,
                                uint32_t stages, uint64_t epoch, uint64_t* bytes = nullptr) {
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
    load->set_step_timeout_ms(milliseconds(kGiveUpAfter).count());
    if (stage + 1 < stages) {
      const v1::NodeInfo next = coordinator->Node("w" + std::to_string(stage + 1));
      load->set_next_node(next.name());
      load->set_next_incarnation(next.incarnation());
      load->set_next_address(next.address());
    } else {
      load->set_next_incarnation(testing::FakeCoordinator::kIncarnation);
    }
    return message;
  }

  static v1::LoadProgress WaitLoaded(testing::FakeCoordinator* coordinator,
                                     const std::string& node) {
    return coordinator
        ->Take(node,
               [](const v1::WorkerMessage& m) {
                 return m.load_progress().phase() == v1::LoadProgress::PHASE_READY ||
                        m.load_progress().phase() == v1::LoadProgress::PHASE_FAILED;
               })
        .load_progress();
  }

  static void Fence(testing::FakeCoordinator* coordinator, const std::string& node,
                    uint64_t epoch) {
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_deployment(kDeployment);
    message.mutable_fence()->set_epoch(epoch);
    coordinator->Send(node, message);
  }

  static v1::FenceAck WaitFenced(testing::FakeCoordinator* coordinator, const std::string& node) {
    return coordinator->Take(node, [](const v1::WorkerMessage& m) { return m.has_fence_ack(); })
        .fence_ack();
  }

  absl::StatusOr<std::unique_ptr<LinkSender>> OpenFirst(testing::FakeCoordinator* coordinator,
                                                        uint64_t epoch) {
    const v1::NodeInfo first = coordinator->Node("w0");
    LinkOptions options;
    options.address = first.address();
    options.open.set_from_incarnation(testing::FakeCoordinator::kIncarnation);
    options.open.set_to_node("w0");
    options.open.set_to_incarnation(first.incarnation());
    options.open.set_deployment(kDeployment);
    options.open.set_epoch(epoch);
    options.open_timeout = kGiveUpAfter;
    return LinkSender::Open(coordinator->loop(), coordinator->transport(), options,
                            [](const absl::Status&) {});
  }

  // Greedy ids after a prompt, one token a step.
  static std::vector<uint32_t> Generate(testing::FakeCoordinator* coordinator, LinkSender* link,
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

}  // namespace strata

#endif  // STRATA_TESTS_WORKER_SERVICE_WORKER_NODE_FIXTURE_H_
