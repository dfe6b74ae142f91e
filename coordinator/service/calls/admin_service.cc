#include "coordinator/service/calls/admin_service.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/service/loop/errors.h"

namespace strata {
namespace {

// Calls that run at once, of those that ask the event loop and read a file at most.
constexpr size_t kQuickThreads = 16;
// How long a node may take to leave whose certificate was revoked, and how often it is looked at.
constexpr std::chrono::milliseconds kLeaves{5000};
constexpr std::chrono::milliseconds kLookEvery{20};
// How often a waiting client hears of progress.
constexpr std::chrono::milliseconds kReportEvery{100};

template <typename T>
grpc::Status Answer(absl::StatusOr<T> result, T* response) {
  if (!result.ok()) {
    return ToGrpc(result.status());
  }
  *response = *std::move(result);
  return grpc::Status::OK;
}

template <typename T>
grpc::Status AnswerAll(absl::StatusOr<std::vector<T>> result,
                       google::protobuf::RepeatedPtrField<T>* out) {
  if (!result.ok()) {
    return ToGrpc(result.status());
  }
  for (T& item : *result) {
    *out->Add() = std::move(item);
  }
  return grpc::Status::OK;
}

CallThreadsOptions ThatWait(size_t threads, const AdminOptions& options) {
  return {.threads = threads,
          .waiting = options.max_waiting_calls,
          .name = "waiting_calls",
          .hint = "try again in a moment, or raise --max-waiting-calls of strata-coordinator"};
}

}  // namespace

AdminServiceImpl::AdminServiceImpl(Coordinator* coordinator, AdminOptions options)
    : coordinator_(coordinator),
      options_(std::move(options)),
      intake_(options_.intake, coordinator->models(), coordinator->report(),
              coordinator->wait_board()),
      quick_(ThatWait(kQuickThreads, options_)),
      // The store takes one at a time; who only asks does not wait for it.
      changes_(ThatWait(1, options_)),
      long_({.threads = options_.max_long_calls,
             .waiting = 0,
             .name = "long_calls",
             .hint = "wait until one has ended, or raise --max-long-calls of strata-coordinator"}) {
}

grpc::Service* AdminServiceImpl::NewService() {
  service_ = std::make_unique<v1::AdminService::AsyncService>();
  return service_.get();
}

void AdminServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::AdminService::AsyncService;
  const BlockingMethods quick(service_.get(), loop, &quick_);
  quick.Serve(&Async::RequestGetStatus, Guarded("GetStatus", &This::GetStatus));
  quick.Serve(&Async::RequestListNodes, Guarded("ListNodes", &This::ListNodes));
  quick.Serve(&Async::RequestGetNode, Guarded("GetNode", &This::GetNode));
  quick.Serve(&Async::RequestListModels,
              Guarded("ListModels", &This::ListModels, OperatorCall::kOwn));
  quick.Serve(&Async::RequestGetModel, Guarded("GetModel", &This::GetModel, OperatorCall::kOwn));
  quick.Serve(&Async::RequestPlanModel, Guarded("PlanModel", &This::PlanModel));
  quick.Serve(&Async::RequestListSessions, std::bind_front(&This::ListSessions, this));
  quick.Serve(&Async::RequestCancelSession, std::bind_front(&This::CancelSession, this));
  quick.Serve(&Async::RequestListKeys, Guarded("ListKeys", &This::ListKeys));
  const BlockingMethods changes(service_.get(), loop, &changes_);
  changes.Serve(&Async::RequestDrainNode, Audited("DrainNode", &This::DrainNode));
  changes.Serve(&Async::RequestResumeNode, Audited("ResumeNode", &This::ResumeNode));
  changes.Serve(&Async::RequestRemoveNode, Audited("RemoveNode", &This::RemoveNode));
  changes.Serve(&Async::RequestUnloadModel, Audited("UnloadModel", &This::UnloadModel));
  changes.Serve(&Async::RequestCreateKey, Audited("CreateKey", &This::CreateKey));
  changes.Serve(&Async::RequestRevokeKey, Audited("RevokeKey", &This::RevokeKey));
  const BlockingMethods lengthy(service_.get(), loop, &long_);
  lengthy.Serve(&Async::RequestAddModel, Audited("AddModel", &This::AddModel));
  lengthy.Serve(&Async::RequestUploadModel, Guarded("UploadModel", &This::UploadModel));
  lengthy.Serve(&Async::RequestPullModel, Audited("PullModel", &This::PullModel));
  lengthy.Serve(&Async::RequestRemoveModel, Audited("RemoveModel", &This::RemoveModel));
  lengthy.Serve(&Async::RequestLoadModel, Audited("LoadModel", &This::LoadModel));
  lengthy.Serve(&Async::RequestResizeModel, Audited("ResizeModel", &This::ResizeModel));
  lengthy.Serve(&Async::RequestMoveModel, Audited("MoveModel", &This::MoveModel));
  lengthy.Serve(&Async::RequestCheckModel, Guarded("CheckModel", &This::CheckModel));
}

grpc::Status AdminServiceImpl::GetStatus(CallContext*, const v1::GetStatusRequest*,
                                         v1::GetStatusResponse* response) {
  const grpc::Status status = Answer(coordinator_->report()->Status(), response);
  response->set_http_address(options_.http_address);
  return status;
}

grpc::Status AdminServiceImpl::ListNodes(CallContext*, const v1::ListNodesRequest*,
                                         v1::ListNodesResponse* response) {
  return AnswerAll(coordinator_->nodes()->List(), response->mutable_nodes());
}

grpc::Status AdminServiceImpl::GetNode(CallContext*, const v1::GetNodeRequest* request,
                                       v1::Node* response) {
  return Answer(coordinator_->nodes()->Get(request->name()), response);
}

grpc::Status AdminServiceImpl::DrainNode(CallContext*, const v1::DrainNodeRequest* request,
                                         v1::Node* response) {
  return Answer(coordinator_->nodes()->SetDraining(request->name(), true), response);
}

grpc::Status AdminServiceImpl::ResumeNode(CallContext*, const v1::ResumeNodeRequest* request,
                                          v1::Node* response) {
  return Answer(coordinator_->nodes()->SetDraining(request->name(), false), response);
}

grpc::Status AdminServiceImpl::RemoveNode(CallContext*, const v1::RemoveNodeRequest* request,
                                          v1::RemoveNodeResponse* response) {
  if (request->gone()) {
    const auto removed = coordinator_->nodes()->RemoveGone();
    if (!removed.ok()) {
      return ToGrpc(removed.status());
    }
    response->mutable_removed()->Add(removed->begin(), removed->end());
    return grpc::Status::OK;
  }
  const absl::Status removed = RemoveAndRevoke(request->name(), request->force());
  if (removed.ok()) {
    response->add_removed(request->name());
  }
  return ToGrpc(removed);
}

absl::Status AdminServiceImpl::RemoveAndRevoke(const std::string& name, bool force) {
  absl::Status removed = coordinator_->nodes()->Remove(name, force);
  const bool alive = ReasonOf(removed) == "NODE_ALIVE";
  if (!options_.revoke_node || (!removed.ok() && !alive)) {
    return removed;
  }
  ASSIGN_OR_RETURN(const bool gone, options_.revoke_node(name, alive));
  // One that has lost its certificate leaves by itself.
  for (auto waited = kLookEvery; gone && alive && waited < kLeaves && !stopping_;
       waited += kLookEvery) {
    std::this_thread::sleep_for(kLookEvery);
    removed = coordinator_->nodes()->Remove(name, force);
    if (ReasonOf(removed) != "NODE_ALIVE") {
      break;
    }
  }
  return removed;
}

grpc::Status AdminServiceImpl::AddModel(CallContext* context, const v1::AddModelRequest* request,
                                        CallWriter<v1::ModelProgress>* writer) {
  return ToGrpc(
      intake_.Add(request->path(), request->name(), "path",
                  [writer](const v1::ModelProgress& progress) { return writer->Write(progress); }));
}

grpc::Status AdminServiceImpl::UploadModel(
    CallContext* context, CallStream<v1::ModelProgress, v1::UploadModelRequest>* stream) {
  AuditedCall audited(options_.audit, AuditCallOf(context, "UploadModel"));
  const auto read = [&](v1::UploadModelRequest* message) {
    const bool there = stream->Read(message);
    if (there && message->has_begin()) audited.SetObject(message->begin().name());
    return there;
  };
  const absl::Status done = intake_.Upload(
      {.read = read, .end = [context](const absl::Status& why) { context->EndWith(ToGrpc(why)); }},
      [stream](const v1::ModelProgress& progress) { return stream->Write(progress); });
  audited.End(done);
  return ToGrpc(done);
}

grpc::Status AdminServiceImpl::PullModel(CallContext* context, const v1::PullModelRequest* request,
                                         CallWriter<v1::ModelProgress>* writer) {
  return ToGrpc(intake_.Pull(
      *request, [writer](const v1::ModelProgress& progress) { return writer->Write(progress); }));
}

grpc::Status AdminServiceImpl::ListModels(CallContext*, const v1::ListModelsRequest*,
                                          v1::ListModelsResponse* response) {
  return AnswerAll(coordinator_->report()->ListModels(), response->mutable_models());
}

grpc::Status AdminServiceImpl::GetModel(CallContext*, const v1::GetModelRequest* request,
                                        v1::Model* response) {
  return Answer(coordinator_->report()->GetModel(request->name()), response);
}

grpc::Status AdminServiceImpl::RemoveModel(CallContext*, const v1::RemoveModelRequest* request,
                                           v1::RemoveModelResponse*) {
  return ToGrpc(coordinator_->loads()->Remove(request->name(), request->force()));
}

grpc::Status AdminServiceImpl::PlanModel(CallContext*, const v1::PlanModelRequest* request,
                                         v1::PlanModelResponse* response) {
  return Answer(coordinator_->loads()->Plan(request->model(), request->options()),
                response->mutable_plan());
}

grpc::Status AdminServiceImpl::LoadModel(CallContext* context, const v1::LoadModelRequest* request,
                                         CallWriter<v1::LoadModelProgress>* writer) {
  return Follow(
      coordinator_->loads()->Load(request->model(), request->options()), request->detach(),
      [&] { return coordinator_->loads()->Progress(request->model()); }, context, writer);
}

grpc::Status AdminServiceImpl::MoveModel(CallContext* context, const v1::MoveModelRequest* request,
                                         CallWriter<v1::LoadModelProgress>* writer) {
  return Follow(
      request->plan_only() ? coordinator_->moves()->Plan(*request)
                           : coordinator_->moves()->Move(*request),
      request->detach() || request->plan_only(),
      [&] { return coordinator_->moves()->Progress(request->model()); }, context, writer);
}

grpc::Status AdminServiceImpl::Follow(const absl::StatusOr<v1::Plan>& plan, bool detach,
                                      const ProgressFn& next, CallContext* context,
                                      CallWriter<v1::LoadModelProgress>* writer) const {
  if (!plan.ok()) {
    return ToGrpc(plan.status());
  }
  v1::LoadModelProgress first;
  *first.mutable_plan() = *plan;
  writer->Write(first);
  while (!detach && !stopping_ && !context->IsCancelled()) {
    const auto progress = next();
    if (!progress.ok()) {
      return ToGrpc(progress.status());
    }
    if (!writer->Write(*progress) || progress->ready()) {
      break;
    }
    std::this_thread::sleep_for(kReportEvery);
  }
  return grpc::Status::OK;
}

grpc::Status AdminServiceImpl::UnloadModel(CallContext*, const v1::UnloadModelRequest* request,
                                           v1::UnloadModelResponse*) {
  return ToGrpc(coordinator_->loads()->Unload(request->model(), request->force()));
}

grpc::Status AdminServiceImpl::ResizeModel(CallContext* context,
                                           const v1::ResizeModelRequest* request,
                                           v1::ResizeModelResponse* response) {
  const auto gone = [&] { return stopping_ || context->IsCancelled(); };
  return Answer(coordinator_->loads()->Resize(request->model(), request->kv_tokens(), gone),
                response->mutable_plan());
}

grpc::Status AdminServiceImpl::CheckModel(CallContext* context,
                                          const v1::CheckModelRequest* request,
                                          CallWriter<v1::CheckModelProgress>* writer) {
  v1::CheckModelProgress last;
  const auto report = [&](const v1::CheckModelProgress& progress) {
    last = progress;
    writer->Write(progress);
  };
  const auto gone = [&] { return stopping_ || context->IsCancelled(); };
  auto check = coordinator_->checks()->Check(*request, report, gone);
  if (!check.ok()) {
    return ToGrpc(stopping_ ? Stopping() : check.status());
  }
  last.set_phase("done");
  *last.mutable_check() = *std::move(check);
  writer->Write(last);
  return grpc::Status::OK;
}

}  // namespace strata
