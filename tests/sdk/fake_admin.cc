// What the fake coordinator answers to the admin calls.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/admin.grpc.pb.h"
#include "tests/sdk/fake_services.h"

namespace strata::testing {
namespace {

class FakeAdmin : public IoService {
 public:
  explicit FakeAdmin(FakeState* state) : state_(*state) {}

  grpc::Service* NewService() override {
    service_ = std::make_unique<Async>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&Async::RequestGetStatus, std::bind_front(&FakeAdmin::GetStatus, this));
    calls.Serve(&Async::RequestListNodes, std::bind_front(&FakeAdmin::ListNodes, this));
    calls.Serve(&Async::RequestGetNode, std::bind_front(&FakeAdmin::GetNode, this));
    calls.Serve(&Async::RequestDrainNode, std::bind_front(&FakeAdmin::DrainNode, this));
    calls.Serve(&Async::RequestResumeNode, std::bind_front(&FakeAdmin::ResumeNode, this));
    calls.Serve(&Async::RequestRemoveNode, std::bind_front(&FakeAdmin::RemoveNode, this));
    calls.Serve(&Async::RequestAddModel, std::bind_front(&FakeAdmin::AddModel, this));
    calls.Serve(&Async::RequestUploadModel, std::bind_front(&FakeAdmin::UploadModel, this));
    calls.Serve(&Async::RequestPullModel, std::bind_front(&FakeAdmin::PullModel, this));
    calls.Serve(&Async::RequestListModels, std::bind_front(&FakeAdmin::ListModels, this));
    calls.Serve(&Async::RequestGetModel, std::bind_front(&FakeAdmin::GetModel, this));
    calls.Serve(&Async::RequestRemoveModel, std::bind_front(&FakeAdmin::RemoveModel, this));
    calls.Serve(&Async::RequestPlanModel, std::bind_front(&FakeAdmin::PlanModel, this));
    calls.Serve(&Async::RequestLoadModel, std::bind_front(&FakeAdmin::LoadModel, this));
    calls.Serve(&Async::RequestUnloadModel, std::bind_front(&FakeAdmin::UnloadModel, this));
    calls.Serve(&Async::RequestResizeModel, std::bind_front(&FakeAdmin::ResizeModel, this));
    calls.Serve(&Async::RequestMoveModel, std::bind_front(&FakeAdmin::MoveModel, this));
    calls.Serve(&Async::RequestCheckModel, std::bind_front(&FakeAdmin::CheckModel, this));
    calls.Serve(&Async::RequestListSessions, std::bind_front(&FakeAdmin::ListSessions, this));
    calls.Serve(&Async::RequestCancelSession, std::bind_front(&FakeAdmin::CancelSession, this));
    calls.Serve(&Async::RequestCreateKey, std::bind_front(&FakeAdmin::CreateKey, this));
    calls.Serve(&Async::RequestListKeys, std::bind_front(&FakeAdmin::ListKeys, this));
    calls.Serve(&Async::RequestRevokeKey, std::bind_front(&FakeAdmin::RevokeKey, this));
  }

 private:
  using Async = v1::AdminService::AsyncService;

  grpc::Status GetStatus(CallContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) {
    *response = state_.status;
    return grpc::Status::OK;
  }
  grpc::Status ListNodes(CallContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) {
    *response->mutable_nodes() = state_.status.nodes();
    return grpc::Status::OK;
  }
  grpc::Status GetNode(CallContext*, const v1::GetNodeRequest* request, v1::Node* response) {
    return FindNode(request->name(), "", response);
  }
  grpc::Status DrainNode(CallContext*, const v1::DrainNodeRequest* request, v1::Node* response) {
    return FindNode(request->name(), "draining", response);
  }
  grpc::Status ResumeNode(CallContext*, const v1::ResumeNodeRequest* request, v1::Node* response) {
    return FindNode(request->name(), "ready", response);
  }
  grpc::Status RemoveNode(CallContext*, const v1::RemoveNodeRequest* request,
                          v1::RemoveNodeResponse* response) {
    if (request->gone()) {
      response->add_removed("c");
      response->add_removed("d");
      return grpc::Status::OK;
    }
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

  grpc::Status AddModel(CallContext* context, const v1::AddModelRequest* request,
                        CallWriter<v1::ModelProgress>* writer) {
    if (request->path().find("nowhere") != std::string::npos) {
      return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_CHECKPOINT",
                          request->path() + " is no folder of the coordinator's machine")
                        .Hint("give a folder there, or --upload"));
    }
    return Register(context, "digesting", request->name().empty() ? "recall" : request->name(),
                    request->path(), writer);
  }
  grpc::Status PullModel(CallContext* context, const v1::PullModelRequest* request,
                         CallWriter<v1::ModelProgress>* writer) {
    {
      MutexLock lock(&state_.mutex);
      state_.pull = *request;
    }
    return Register(context, "downloading", "pulled", "/data", writer);
  }
  grpc::Status UploadModel(CallContext*,
                           CallStream<v1::ModelProgress, v1::UploadModelRequest>* stream) {
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
    MutexLock lock(&state_.mutex);
    state_.upload_name = name;
    state_.upload = files;
    v1::ModelProgress progress;
    progress.set_phase("done");
    *progress.mutable_model() = state_.status.models(0);
    progress.mutable_model()->set_name(name);
    stream->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status ListModels(CallContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) {
    *response->mutable_models() = state_.status.models();
    return grpc::Status::OK;
  }
  grpc::Status GetModel(CallContext*, const v1::GetModelRequest* request, v1::Model* response) {
    *response = state_.status.models(0);
    v1::Scheduling* scheduling = response->mutable_scheduling();
    scheduling->set_step_tokens(64);
    scheduling->set_max_batch_tokens(512);
    scheduling->set_max_sessions(1024);
    scheduling->set_micro_batches(2);
    scheduling->set_prefill_step_ms(1250);
    scheduling->set_inter_token_target_ms(20);
    return request->name() == response->name() ? grpc::Status::OK : NoSuchModel(request->name());
  }
  grpc::Status RemoveModel(CallContext*, const v1::RemoveModelRequest* request,
                           v1::RemoveModelResponse*) {
    return request->name() == "missing" ? NoSuchModel(request->name()) : grpc::Status::OK;
  }

  grpc::Status PlanModel(CallContext*, const v1::PlanModelRequest* request,
                         v1::PlanModelResponse* response) {
    if (request->model() == "missing") return NoSuchModel(request->model());
    *response->mutable_plan() = state_.plan;
    response->mutable_plan()->set_epoch(0);
    response->mutable_plan()->set_goal(request->options().goal());
    return grpc::Status::OK;
  }
  grpc::Status LoadModel(CallContext* context, const v1::LoadModelRequest* request,
                         CallWriter<v1::LoadModelProgress>* writer) {
    int pace_ms = 0;
    {
      MutexLock lock(&state_.mutex);
      state_.load = *request;
      pace_ms = state_.load_pace_ms;
    }
    if (request->model() == "missing") return NoSuchModel(request->model());
    v1::LoadModelProgress message;
    *message.mutable_plan() = state_.plan;
    writer->Write(message);
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
        state_.SawCancel();
        return grpc::Status::CANCELLED;
      }
      Pace(*context, pace_ms);
    }
    return grpc::Status::OK;
  }
  grpc::Status UnloadModel(CallContext*, const v1::UnloadModelRequest* request,
                           v1::UnloadModelResponse*) {
    return request->model() == "missing" ? NoSuchModel(request->model()) : grpc::Status::OK;
  }
  grpc::Status ResizeModel(CallContext*, const v1::ResizeModelRequest* request,
                           v1::ResizeModelResponse* response) {
    *response->mutable_plan() = state_.plan;
    response->mutable_plan()->mutable_pipelines(0)->set_kv_tokens(request->kv_tokens());
    return grpc::Status::OK;
  }
  grpc::Status MoveModel(CallContext* context, const v1::MoveModelRequest* request,
                         CallWriter<v1::LoadModelProgress>* writer) {
    v1::LoadModelRequest load;
    load.set_model(request->model());
    load.set_detach(request->detach() || request->plan_only());
    *load.mutable_options()->mutable_nodes() = request->nodes();
    *load.mutable_options()->mutable_layers() = request->layers();
    return LoadModel(context, &load, writer);
  }
  // Of the model "flipped" a layer differs.
  grpc::Status CheckModel(CallContext*, const v1::CheckModelRequest* request,
                          CallWriter<v1::CheckModelProgress>* writer) {
    if (request->name() == "missing") {
      return ToGrpc(Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
                          "model 'missing' is not loaded"));
    }
    v1::CheckModelProgress progress;
    progress.set_layers_total(9);
    progress.set_phase("stages");
    writer->Write(progress);
    progress.set_phase("layers");
    progress.set_layers_done(9);
    writer->Write(progress);
    progress.set_phase("done");
    v1::ModelCheck* check = progress.mutable_check();
    check->set_equal(request->name() != "flipped");
    check->set_numerics_class("cpu-2/w=bf16");
    check->set_plan_epoch(3);
    check->set_reference_node(request->node().empty() ? "b" : request->node());
    check->set_tokens(request->tokens() == 0 ? 24 : request->tokens());
    check->set_layers(8);
    if (!check->equal()) {
      check->set_layer(6);
      check->set_position(5);
      check->set_stage(1);
      check->set_node("a");
      check->set_hint("drain 'a'");
    }
    writer->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(CallContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response) {
    *response->mutable_sessions() = state_.status.sessions();
    return grpc::Status::OK;
  }
  grpc::Status CancelSession(CallContext*, const v1::CancelSessionRequest* request,
                             v1::CancelSessionResponse*) {
    for (const v1::Session& session : state_.status.sessions()) {
      if (session.request_id() == request->request_id()) return grpc::Status::OK;
    }
    return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_REQUEST",
                        "no request \"" + request->request_id() + "\" is in flight"));
  }

  grpc::Status CreateKey(CallContext*, const v1::CreateKeyRequest* request,
                         v1::CreateKeyResponse* response) {
    MutexLock lock(&state_.mutex);
    v1::Key* key = response->mutable_key();
    key->set_id("key-" + std::to_string(state_.keys.size() + 1));
    key->set_name(request->name());
    key->set_admin(request->admin());
    key->set_created(1'700'000'000);
    key->set_requests_in_flight(request->requests_in_flight());
    key->set_requests_per_minute(request->requests_per_minute());
    key->set_tokens_per_minute(request->tokens_per_minute());
    key->set_max_priority(request->max_priority());
    key->set_guaranteed(request->guaranteed());
    response->set_secret("strata-secret");
    state_.keys.push_back(*key);
    return grpc::Status::OK;
  }
  grpc::Status ListKeys(CallContext*, const v1::ListKeysRequest*, v1::ListKeysResponse* response) {
    MutexLock lock(&state_.mutex);
    response->mutable_keys()->Add(state_.keys.begin(), state_.keys.end());
    return grpc::Status::OK;
  }
  grpc::Status RevokeKey(CallContext*, const v1::RevokeKeyRequest* request,
                         v1::RevokeKeyResponse* response) {
    MutexLock lock(&state_.mutex);
    for (v1::Key& key : state_.keys) {
      if (key.id() == request->id()) {
        key.set_revoked(1'700'000'100);
        *response->mutable_key() = key;
        response->set_cancelled(request->cancel() ? 2 : 0);
        return grpc::Status::OK;
      }
    }
    return ToGrpc(Error(absl::StatusCode::kNotFound, "KEY_NOT_FOUND",
                        "there is no key '" + request->id() + "'"));
  }

  grpc::Status FindNode(const std::string& name, const std::string& state, v1::Node* response) {
    for (const v1::Node& node : state_.status.nodes()) {
      if (node.name() == name) {
        *response = node;
        if (!state.empty()) response->set_state(state);
        return grpc::Status::OK;
      }
    }
    return ToGrpc(Error(absl::StatusCode::kNotFound, "NO_SUCH_NODE", "no node \"" + name + "\"")
                      .Hint("see `strata node list`"));
  }

  grpc::Status Register(CallContext* context, const std::string& phase, const std::string& name,
                        const std::string& path, CallWriter<v1::ModelProgress>* writer) {
    int pace_ms = 0;
    {
      MutexLock lock(&state_.mutex);
      pace_ms = state_.load_pace_ms;
    }
    v1::ModelProgress progress;
    for (uint64_t done = 0; done <= 4; ++done) {
      progress.set_phase(phase);
      progress.set_file("model.safetensors");
      progress.set_done_bytes(done << 20);
      progress.set_total_bytes(4 << 20);
      if (!writer->Write(progress) || context->IsCancelled()) {
        state_.SawCancel();
        return grpc::Status::CANCELLED;
      }
      Pace(*context, pace_ms);
    }
    progress.set_phase("done");
    *progress.mutable_model() = state_.status.models(0);
    progress.mutable_model()->set_name(name);
    progress.mutable_model()->set_path(path);
    writer->Write(progress);
    return grpc::Status::OK;
  }

  FakeState& state_;
  std::unique_ptr<Async> service_;
  CallThreads threads_{{.threads = 64}};
};

}  // namespace

std::unique_ptr<IoService> MakeFakeAdmin(FakeState* state) {
  return std::make_unique<FakeAdmin>(state);
}

}  // namespace strata::testing
