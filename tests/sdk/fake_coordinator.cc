#include "tests/sdk/fake_coordinator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "strata/v1/admin.grpc.pb.h"
#include "strata/v1/inference.grpc.pb.h"

namespace strata::testing {
namespace {

using grpc::ServerContext;

constexpr uint64_t kDrawnSeed = 77;

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

grpc::Status NoSuchModel(const std::string& name) {
  return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_MODEL", "no model \"" + name + "\"")
                    .Hint("see `strata model list`"));
}

}  // namespace

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

// What the services share.
struct Shared {
  mutable Mutex mutex;
  std::deque<Mishap> mishaps STRATA_GUARDED_BY(mutex);
  std::vector<v1::GenerateRequest> requests STRATA_GUARDED_BY(mutex);
  v1::LoadModelRequest load STRATA_GUARDED_BY(mutex);
  v1::PullModelRequest pull STRATA_GUARDED_BY(mutex);
  std::string authorization STRATA_GUARDED_BY(mutex);
  std::string upload_name STRATA_GUARDED_BY(mutex);
  std::vector<std::pair<std::string, std::string>> upload STRATA_GUARDED_BY(mutex);
  int cancelled STRATA_GUARDED_BY(mutex) = 0;
  int begun STRATA_GUARDED_BY(mutex) = 0;
  int pace_ms STRATA_GUARDED_BY(mutex) = 0;
  int load_pace_ms STRATA_GUARDED_BY(mutex) = 0;
  v1::GetStatusResponse status;
  v1::Plan plan;

  void Began() {
    MutexLock lock(&mutex);
    ++begun;
  }
  void SawCancel() {
    MutexLock lock(&mutex);
    ++cancelled;
  }
};

class FakeInference : public v1::InferenceService::Service {
 public:
  explicit FakeInference(Shared* shared) : shared_(*shared) {}

  grpc::Status Generate(ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Mishap mishap;
    int pace_ms = 0;
    {
      MutexLock lock(&shared_.mutex);
      shared_.requests.push_back(*request);
      const auto key = context->client_metadata().find("authorization");
      if (key != context->client_metadata().end()) {
        shared_.authorization = std::string(key->second.data(), key->second.size());
      }
      if (!shared_.mishaps.empty()) {
        mishap = shared_.mishaps.front();
        shared_.mishaps.pop_front();
      }
      pace_ms = shared_.pace_ms;
    }
    if (request->model() == "missing") {
      return NoSuchModel(request->model());
    }
    if (mishap.kind == Mishap::kFail) {
      return ToGrpc(Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS",
                          "prompt + max_tokens is 9000 tokens")
                        .Node("a")
                        .Limit("kv_tokens=8192")
                        .Hint("lower --max-tokens"));
    }
    return Answer(context, *request, mishap, pace_ms, writer);
  }

  grpc::Status Tokenize(ServerContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (request->model() == "missing") {
      return NoSuchModel(request->model());
    }
    if (request->has_chat()) {
      for (const auto& message : request->chat().messages()) {
        response->set_prompt(response->prompt() + message.role() + ":" + message.content() + "\n");
      }
    }
    const std::string& text = request->has_chat() ? response->prompt() : request->text();
    if (request->add_special_tokens()) {
      response->add_ids(1000);
    }
    for (const char c : text) {
      response->add_ids(static_cast<unsigned char>(c));
    }
    return grpc::Status::OK;
  }

  grpc::Status Detokenize(ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    for (const uint32_t id : request->ids()) {
      if (id < 256) {
        response->mutable_text()->push_back(static_cast<char>(id));
      } else if (!request->skip_special_tokens()) {
        *response->mutable_text() += "<" + std::to_string(id) + ">";
      }
    }
    return grpc::Status::OK;
  }

 private:
  static uint32_t PromptTokens(const v1::GenerateRequest& request) {
    if (request.has_tokens()) return static_cast<uint32_t>(request.tokens().ids_size());
    if (request.has_chat()) return static_cast<uint32_t>(request.chat().messages_size()) * 10;
    return static_cast<uint32_t>(request.text().size());
  }

  static void AddLogits(uint32_t first, uint32_t rows, v1::GenerateResponse* response) {
    response->mutable_logits()->set_rows(rows);
    response->mutable_logits()->set_columns(kFakeVocab);
    for (uint32_t row = first; row < first + rows; ++row) {
      for (uint32_t column = 0; column < kFakeVocab; ++column) {
        const float value = FakeLogit(row, column);
        response->mutable_logits()->mutable_values()->append(reinterpret_cast<const char*>(&value),
                                                             sizeof(value));
      }
    }
  }

  static v1::GenerateResponse First(const v1::GenerateRequest& request, uint64_t seed,
                                    uint32_t max_tokens, const Mishap& mishap) {
    v1::GenerateResponse first;
    first.set_request_id(request.request_id());
    v1::Started* started = first.mutable_started();
    started->set_seed(seed);
    started->set_numerics_class(mishap.kind == Mishap::kOtherClass ? "other-1" : kFakeClass);
    started->set_plan_epoch(3);
    started->set_prompt_tokens(PromptTokens(request));
    started->set_max_tokens(max_tokens);
    if (request.has_prompt_logprobs()) {
      for (uint32_t i = 1; i < PromptTokens(request); ++i) {
        v1::TokenLogprob* logprob = first.add_prompt_logprobs();
        logprob->set_token_id(i);
        logprob->set_logprob(-0.25f * static_cast<float>(i));
      }
    }
    if (request.return_logits()) {
      AddLogits(0, PromptTokens(request), &first);
    }
    return first;
  }

  static v1::GenerateResponse Token(const v1::GenerateRequest& request, uint64_t seed, uint32_t i) {
    v1::GenerateResponse response;
    response.add_token_ids(FakeToken(seed, i));
    if (request.model() != "textless") {
      response.set_text(FakeText(seed, i));
    }
    if (request.has_logprobs()) {
      v1::TokenLogprob* logprob = response.add_logprobs();
      logprob->set_token_id(FakeToken(seed, i));
      logprob->set_logprob(FakeLogprob(seed, i));
      for (uint32_t k = 0; k < request.logprobs(); ++k) {
        logprob->add_top()->set_token_id(k);
        logprob->mutable_top(static_cast<int>(k))
            ->set_logprob(-1.0f - 0.1f * static_cast<float>(k));
      }
    }
    if (request.return_logits() && i > 0) {
      AddLogits(PromptTokens(request) + i - 1, 1, &response);
    }
    return response;
  }

  grpc::Status Answer(ServerContext* context, const v1::GenerateRequest& request,
                      const Mishap& mishap, int pace_ms,
                      grpc::ServerWriter<v1::GenerateResponse>* writer) {
    const uint64_t seed = request.sampling().has_seed() ? request.sampling().seed() : kDrawnSeed;
    const uint32_t max_tokens = request.max_tokens() == 0 ? 8 : request.max_tokens();
    writer->Write(First(request, seed, max_tokens, mishap));
    for (uint32_t i = 0; i < max_tokens; ++i) {
      if (i == mishap.after && mishap.kind != Mishap::kOtherToken) {
        if (const std::optional<grpc::Status> end = Strike(context, mishap, writer)) {
          return *end;
        }
      }
      const bool other = mishap.kind == Mishap::kOtherToken && i >= mishap.after;
      if (!writer->Write(Token(request, other ? seed + 1 : seed, i)) || context->IsCancelled()) {
        shared_.SawCancel();
        return grpc::Status::CANCELLED;
      }
      Sleep(pace_ms);
    }
    return End(max_tokens, PromptTokens(request), "length", writer);
  }

  static grpc::Status End(uint32_t tokens, uint32_t prompt_tokens, const std::string& reason,
                          grpc::ServerWriter<v1::GenerateResponse>* writer) {
    v1::GenerateResponse last;
    last.mutable_finish()->set_reason(reason);
    last.mutable_finish()->set_prompt_tokens(prompt_tokens);
    last.mutable_finish()->set_completion_tokens(tokens);
    last.mutable_finish()->set_ttft_ms(2.5);
    last.mutable_finish()->set_total_ms(10);
    writer->Write(last);
    return grpc::Status::OK;
  }

  // The end that the mishap brings, if it brings one.
  std::optional<grpc::Status> Strike(ServerContext* context, const Mishap& mishap,
                                     grpc::ServerWriter<v1::GenerateResponse>* writer) {
    switch (mishap.kind) {
      case Mishap::kBreak:
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
      case Mishap::kNotYet:
        return ToGrpc(Error(absl::StatusCode::kUnavailable, "MODEL_NOT_READY", "not yet"));
      case Mishap::kHang:
        while (!context->IsCancelled()) {
          Sleep(2);
        }
        shared_.SawCancel();
        return grpc::Status::CANCELLED;
      case Mishap::kCancelled:
        return End(mishap.after, 1, "cancelled", writer);
      case Mishap::kNoFinish:
        return grpc::Status::OK;
      default:
        return std::nullopt;
    }
  }

  Shared& shared_;
};

class FakeAdmin : public v1::AdminService::Service {
 public:
  explicit FakeAdmin(Shared* shared) : shared_(*shared) {}

  grpc::Status GetStatus(ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    *response = shared_.status;
    return grpc::Status::OK;
  }
  grpc::Status ListNodes(ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    *response->mutable_nodes() = shared_.status.nodes();
    return grpc::Status::OK;
  }
  grpc::Status GetNode(ServerContext*, const v1::GetNodeRequest* request,
                       v1::Node* response) override {
    return FindNode(request->name(), "", response);
  }
  grpc::Status DrainNode(ServerContext*, const v1::DrainNodeRequest* request,
                         v1::Node* response) override {
    return FindNode(request->name(), "draining", response);
  }
  grpc::Status ResumeNode(ServerContext*, const v1::ResumeNodeRequest* request,
                          v1::Node* response) override {
    return FindNode(request->name(), "ready", response);
  }
  grpc::Status RemoveNode(ServerContext*, const v1::RemoveNodeRequest* request,
                          v1::RemoveNodeResponse*) override {
    v1::Node node;
    if (grpc::Status found = FindNode(request->name(), "", &node);
        !found.ok() || request->force()) {
      return found;
    }
    return ToGrpc(
        Error(absl::StatusCode::kFailedPrecondition, "NODE_IN_USE", "recall has layers on a")
            .Node("a")
            .Hint("`strata model unload recall` first, or --force"));
  }

  grpc::Status AddModel(ServerContext* context, const v1::AddModelRequest* request,
                        grpc::ServerWriter<v1::ModelProgress>* writer) override {
    if (request->path().find("nowhere") != std::string::npos) {
      return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_CHECKPOINT",
                          request->path() + " is no folder of the coordinator's machine")
                        .Hint("give a folder there, or --upload"));
    }
    return Register(context, "digesting", request->name().empty() ? "recall" : request->name(),
                    request->path(), writer);
  }
  grpc::Status PullModel(ServerContext* context, const v1::PullModelRequest* request,
                         grpc::ServerWriter<v1::ModelProgress>* writer) override {
    {
      MutexLock lock(&shared_.mutex);
      shared_.pull = *request;
    }
    return Register(context, "downloading", "pulled", "/data", writer);
  }
  grpc::Status UploadModel(
      ServerContext*,
      grpc::ServerReaderWriter<v1::ModelProgress, v1::UploadModelRequest>* stream) override {
    v1::UploadModelRequest message;
    std::vector<std::pair<std::string, std::string>> files;
    std::string name;
    bool done = false;
    while (stream->Read(&message)) {
      if (message.has_begin()) name = message.begin().name();
      if (message.has_file()) files.emplace_back(message.file().path(), "");
      if (message.kind_case() == v1::UploadModelRequest::kData)
        files.back().second += message.data();
      done = done || message.done();
      if (name == "refused") {
        return ToGrpc(Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS", "refused is taken")
                          .Hint("choose another --name"));
      }
    }
    if (!done) {
      return grpc::Status(grpc::StatusCode::CANCELLED, "");
    }
    MutexLock lock(&shared_.mutex);
    shared_.upload_name = name;
    shared_.upload = files;
    v1::ModelProgress progress;
    progress.set_phase("done");
    *progress.mutable_model() = shared_.status.models(0);
    progress.mutable_model()->set_name(name);
    stream->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status ListModels(ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    *response->mutable_models() = shared_.status.models();
    return grpc::Status::OK;
  }
  grpc::Status GetModel(ServerContext*, const v1::GetModelRequest* request,
                        v1::Model* response) override {
    *response = shared_.status.models(0);
    return request->name() == response->name() ? grpc::Status::OK : NoSuchModel(request->name());
  }
  grpc::Status RemoveModel(ServerContext*, const v1::RemoveModelRequest* request,
                           v1::RemoveModelResponse*) override {
    return request->name() == "missing" ? NoSuchModel(request->name()) : grpc::Status::OK;
  }

  grpc::Status PlanModel(ServerContext*, const v1::PlanModelRequest* request,
                         v1::PlanModelResponse* response) override {
    if (request->model() == "missing") return NoSuchModel(request->model());
    *response->mutable_plan() = shared_.plan;
    response->mutable_plan()->set_epoch(0);
    response->mutable_plan()->set_goal(request->options().goal());
    return grpc::Status::OK;
  }
  grpc::Status LoadModel(ServerContext* context, const v1::LoadModelRequest* request,
                         grpc::ServerWriter<v1::LoadModelProgress>* writer) override {
    int pace_ms = 0;
    {
      MutexLock lock(&shared_.mutex);
      shared_.load = *request;
      pace_ms = shared_.load_pace_ms;
    }
    if (request->model() == "missing") return NoSuchModel(request->model());
    v1::LoadModelProgress message;
    *message.mutable_plan() = shared_.plan;
    writer->Write(message);
    shared_.Began();
    message.clear_plan();
    if (request->detach()) return grpc::Status::OK;
    for (uint64_t done = 0; done <= 100; done += 25) {
      message.clear_workers();
      for (const char* node : {"a", "b"}) {
        v1::LoadModelProgress::Worker* worker = message.add_workers();
        worker->set_node(node);
        worker->set_phase(done < 50 ? "fetching" : done < 100 ? "packing" : "ready");
        worker->set_done_bytes(done << 20);
        worker->set_total_bytes(100 << 20);
        worker->set_fetched_bytes(done << 19);
      }
      message.set_ready(done == 100);
      if (!writer->Write(message) || context->IsCancelled()) {
        shared_.SawCancel();
        return grpc::Status::CANCELLED;
      }
      Sleep(pace_ms);
    }
    return grpc::Status::OK;
  }
  grpc::Status UnloadModel(ServerContext*, const v1::UnloadModelRequest* request,
                           v1::UnloadModelResponse*) override {
    return request->model() == "missing" ? NoSuchModel(request->model()) : grpc::Status::OK;
  }
  grpc::Status ResizeModel(ServerContext*, const v1::ResizeModelRequest* request,
                           v1::ResizeModelResponse* response) override {
    *response->mutable_plan() = shared_.plan;
    response->mutable_plan()->mutable_pipelines(0)->set_kv_tokens(request->kv_tokens());
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response) override {
    *response->mutable_sessions() = shared_.status.sessions();
    return grpc::Status::OK;
  }
  grpc::Status CancelSession(ServerContext*, const v1::CancelSessionRequest* request,
                             v1::CancelSessionResponse*) override {
    for (const v1::Session& session : shared_.status.sessions()) {
      if (session.request_id() == request->request_id()) return grpc::Status::OK;
    }
    return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_REQUEST",
                        "no request \"" + request->request_id() + "\" is in flight"));
  }

 private:
  grpc::Status FindNode(const std::string& name, const std::string& state, v1::Node* response) {
    for (const v1::Node& node : shared_.status.nodes()) {
      if (node.name() == name) {
        *response = node;
        if (!state.empty()) response->set_state(state);
        return grpc::Status::OK;
      }
    }
    return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_NODE", "no node \"" + name + "\"")
                      .Hint("see `strata node list`"));
  }

  grpc::Status Register(ServerContext* context, const std::string& phase, const std::string& name,
                        const std::string& path, grpc::ServerWriter<v1::ModelProgress>* writer) {
    int pace_ms = 0;
    {
      MutexLock lock(&shared_.mutex);
      pace_ms = shared_.load_pace_ms;
    }
    v1::ModelProgress progress;
    for (uint64_t done = 0; done <= 4; ++done) {
      progress.set_phase(phase);
      progress.set_file("model.safetensors");
      progress.set_done_bytes(done << 20);
      progress.set_total_bytes(4 << 20);
      if (!writer->Write(progress) || context->IsCancelled()) {
        shared_.SawCancel();
        return grpc::Status::CANCELLED;
      }
      if (done == 0) shared_.Began();
      Sleep(pace_ms);
    }
    progress.set_phase("done");
    *progress.mutable_model() = shared_.status.models(0);
    progress.mutable_model()->set_name(name);
    progress.mutable_model()->set_path(path);
    writer->Write(progress);
    return grpc::Status::OK;
  }

  Shared& shared_;
};

class FakeCoordinator::Impl {
 public:
  explicit Impl(int port) : inference(&shared), admin(&shared), port(port) {}

  Shared shared;
  FakeInference inference;
  FakeAdmin admin;
  std::unique_ptr<RpcServer> server;
  std::string address;
  int port;
};

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
    node->set_backend("cpu");
    node->set_isa("avx2");
    node->set_threads(4);
    node->add_models(*name == 'a' ? "recall layers 0-1" : "recall layers 2-3");
    v1::PlanStage* stage = pipeline->add_stages();
    stage->add_ranks()->set_node(name);
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

FakeCoordinator::FakeCoordinator(int port) : impl_(std::make_unique<Impl>(port)) {
  FillCluster(&impl_->shared.status, &impl_->shared.plan);
  Start();
}

FakeCoordinator::~FakeCoordinator() { Stop(); }

void FakeCoordinator::Start() {
  const auto transport = Transport::Make({});
  ASSERT_TRUE(transport.ok()) << Describe(transport.status());
  auto server = RpcServer::Start(*transport, "127.0.0.1:" + std::to_string(impl_->port),
                                 {&impl_->inference, &impl_->admin});
  ASSERT_TRUE(server.ok()) << Describe(server.status());
  impl_->server = *std::move(server);
  impl_->port = impl_->server->port();
  impl_->address = impl_->server->address();
}

void FakeCoordinator::Stop() { impl_->server.reset(); }

const std::string& FakeCoordinator::address() const { return impl_->address; }
int FakeCoordinator::port() const { return impl_->port; }

void FakeCoordinator::Plan(std::deque<Mishap> mishaps) {
  MutexLock lock(&impl_->shared.mutex);
  impl_->shared.mishaps = std::move(mishaps);
}

void FakeCoordinator::SetPaceMs(int ms) {
  MutexLock lock(&impl_->shared.mutex);
  impl_->shared.pace_ms = ms;
}

void FakeCoordinator::SetLoadPaceMs(int ms) {
  MutexLock lock(&impl_->shared.mutex);
  impl_->shared.load_pace_ms = ms;
}

std::vector<v1::GenerateRequest> FakeCoordinator::generate_requests() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.requests;
}

v1::LoadModelRequest FakeCoordinator::last_load() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.load;
}

v1::PullModelRequest FakeCoordinator::last_pull() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.pull;
}

std::string FakeCoordinator::last_authorization() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.authorization;
}

std::string FakeCoordinator::uploaded_name() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.upload_name;
}

std::vector<std::pair<std::string, std::string>> FakeCoordinator::uploaded_files() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.upload;
}

int FakeCoordinator::begun_calls() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.begun;
}

int FakeCoordinator::cancelled_calls() const {
  MutexLock lock(&impl_->shared.mutex);
  return impl_->shared.cancelled;
}

v1::GetStatusResponse* FakeCoordinator::status() { return &impl_->shared.status; }
v1::Plan* FakeCoordinator::plan() { return &impl_->shared.plan; }

}  // namespace strata::testing
