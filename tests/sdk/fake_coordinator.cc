#include "tests/sdk/fake_coordinator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "tests/sdk/fake_services.h"

namespace strata::testing {
namespace {

void FillCluster(v1::GetStatusResponse* status, v1::Plan* plan) {
  status->set_version("9.9");
  status->set_uptime_s(90.5);
  status->set_http_address("127.0.0.1:8080");
  v1::PlanPipeline* pipeline = plan->add_pipelines();
  pipeline->set_kv_tokens(32768);
  plan->set_epoch(3);
  plan->mutable_numerics_class()->set_name(kFakeClass);
  plan->set_limiting_node("b");
  plan->set_predicted_tokens_per_s(45.25);
  plan->add_why("b reads its weights at 12 GB/s");
  for (const char* name : {"a", "b"}) {
    v1::Node* node = status->add_nodes();
    node->set_name(name);
    node->set_state("serving");
    node->set_address(std::string("127.0.0.1:707") + (*name == 'a' ? "1" : "2"));
    node->set_memory_bytes(uint64_t{8} << 30);
    node->set_used_bytes(uint64_t{1} << 30);
    const bool gpu = *name == 'b';
    node->set_backend(gpu ? "cuda" : "cpu");
    node->set_isa(gpu ? "sm_90" : "avx2");
    node->set_device(node->backend());
    node->set_device_name(gpu ? "2 x NVIDIA H200" : "");
    for (uint32_t i = 0; gpu && i < 2; ++i) {
      v1::Node::Device* device = node->add_devices();
      device->set_index(i);
      device->set_name("NVIDIA H200");
      device->set_memory_bytes(uint64_t{4} << 30);
      device->set_share(i == 0 ? 0.75 : 0.25);
      device->set_read_bytes_per_s(2.0 * (uint64_t{1} << 40));
    }
    node->set_read_bytes_per_s(gpu ? 4.0 * (uint64_t{1} << 40) : 0);
    node->set_flops_per_s(gpu ? 6e13 : 0);
    node->set_host_memory_bytes(gpu ? uint64_t{2} << 30 : 0);
    node->set_host_used_bytes(gpu ? uint64_t{1} << 29 : 0);
    node->set_threads(4);
    node->add_models(*name == 'a' ? "recall layers 0-1" : "recall layers 2-3");
    v1::PlanStage* stage = pipeline->add_stages();
    stage->add_ranks()->set_node(name);
    stage->mutable_ranks(0)->set_device(node->device());
    stage->set_first_layer(*name == 'a' ? 0 : 2);
    stage->set_last_layer(*name == 'a' ? 1 : 3);
    stage->set_weight_bytes(uint64_t{100} << 20);
    stage->set_kv_bytes(uint64_t{64} << 20);
    stage->add_kv_pages(2048);
    stage->set_predicted_ms(1.1);
  }
  v1::Model* model = status->add_models();
  model->set_name("recall");
  model->set_state("ready");
  model->set_family("llama");
  model->set_digest("abc123");
  model->set_layers(4);
  model->set_vocab_size(kFakeVocab);
  model->set_weight_bytes(uint64_t{200} << 20);
  *model->mutable_plan() = *plan;
  v1::Session* session = status->add_sessions();
  session->set_request_id("r-1");
  session->set_model("recall");
  session->set_state("decode");
  session->set_prompt_tokens(39);
  session->set_generated_tokens(5);
  session->set_max_tokens(64);
  v1::StageUse* use = status->add_stages();
  use->set_model("recall");
  use->set_node("a");
  use->set_compute_s(2.5);
  v1::KvUse* kv = status->add_kv();
  kv->set_model("recall");
  kv->set_group("full");
  kv->set_total(2048);
  kv->set_free(2045);
  kv->set_live(3);
  v1::Problem* problem = status->add_problems();
  problem->set_what("node c is lost");
  problem->set_do_("start strata-worker on c, or `strata node remove c`");
}

}  // namespace

class FakeCoordinator::Impl {
 public:
  explicit Impl(int port) : port(port) {}

  FakeState state;
  std::unique_ptr<IoService> inference = MakeFakeInference(&state);
  std::unique_ptr<IoService> admin = MakeFakeAdmin(&state);
  std::unique_ptr<IoService> audit = MakeFakeAudit();
  std::unique_ptr<IoService> planning = MakeFakePlanning(&state);
  std::unique_ptr<RpcServer> server;
  std::string address;
  int port;
};

uint32_t FakeToken(uint64_t seed, uint32_t index) {
  return static_cast<uint32_t>((seed * 31 + index * 7 + 3) % 1000);
}

std::string FakeText(uint64_t seed, uint32_t index) {
  return "t" + std::to_string(FakeToken(seed, index)) + " ";
}

float FakeLogprob(uint64_t seed, uint32_t index) {
  return -0.1f - 0.001f * static_cast<float>(FakeToken(seed, index));
}

float FakeLogit(uint32_t row, uint32_t column) {
  return static_cast<float>(row) + 0.1f * static_cast<float>(column);
}

grpc::Status NoSuchModel(const std::string& name) {
  return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_MODEL", "no model \"" + name + "\"")
                    .Hint("see `strata model list`"));
}

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void Pace(const CallContext& context, int ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!context.IsCancelled() && std::chrono::steady_clock::now() < end) {
    SleepMs(1);
  }
}

FakeCoordinator::FakeCoordinator(int port) : impl_(std::make_unique<Impl>(port)) {
  FillCluster(&impl_->state.status, &impl_->state.plan);
  Start();
}

FakeCoordinator::~FakeCoordinator() { Stop(); }

void FakeCoordinator::Start() {
  const auto transport = Transport::Make({});
  ASSERT_TRUE(transport.ok()) << Describe(transport.status());
  auto server = RpcServer::Start(
      *transport, "127.0.0.1:" + std::to_string(impl_->port),
      {impl_->inference.get(), impl_->admin.get(), impl_->audit.get(), impl_->planning.get()});
  ASSERT_TRUE(server.ok()) << Describe(server.status());
  impl_->server = *std::move(server);
  impl_->port = impl_->server->port();
  impl_->address = impl_->server->address();
}

void FakeCoordinator::Stop() { impl_->server.reset(); }

const std::string& FakeCoordinator::address() const { return impl_->address; }
int FakeCoordinator::port() const { return impl_->port; }

void FakeCoordinator::Plan(std::deque<Mishap> mishaps) {
  MutexLock lock(&impl_->state.mutex);
  impl_->state.mishaps = std::move(mishaps);
}

void FakeCoordinator::HoldUntil(size_t requests) {
  MutexLock lock(&impl_->state.mutex);
  impl_->state.hold_until = requests;
}

void FakeCoordinator::SetPaceMs(int ms) {
  MutexLock lock(&impl_->state.mutex);
  impl_->state.pace_ms = ms;
}

void FakeCoordinator::SetLoadPaceMs(int ms) {
  MutexLock lock(&impl_->state.mutex);
  impl_->state.load_pace_ms = ms;
}

std::vector<v1::GenerateRequest> FakeCoordinator::generate_requests() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.requests;
}

v1::LoadModelRequest FakeCoordinator::last_load() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.load;
}

v1::PullModelRequest FakeCoordinator::last_pull() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.pull;
}

std::string FakeCoordinator::last_authorization() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.authorization;
}

std::string FakeCoordinator::uploaded_name() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.upload_name;
}

std::vector<std::pair<std::string, std::string>> FakeCoordinator::uploaded_files() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.upload;
}

int FakeCoordinator::cancelled_calls() const {
  MutexLock lock(&impl_->state.mutex);
  return impl_->state.cancelled;
}

v1::GetStatusResponse* FakeCoordinator::status() { return &impl_->state.status; }
v1::Plan* FakeCoordinator::plan() { return &impl_->state.plan; }
void FakeCoordinator::PredictNothingHere() { impl_->state.predicts = false; }

}  // namespace strata::testing
