// The operators' calls of sdk::Client.
#include <utility>

#include "sdk/cpp/client_impl.h"
#include "sdk/cpp/strata.h"

namespace strata::sdk {

// A call with one answer, whose request is a local variable `request`.
#define STRATA_SDK_UNARY_(Response, Method)                             \
  impl_->Unary<v1::Response>(call, [&](auto* context, auto* response) { \
    return impl_->admin().Method(context, request, response);           \
  })

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus(const CallOptions& call) {
  const v1::GetStatusRequest request;
  return STRATA_SDK_UNARY_(GetStatusResponse, GetStatus);
}

absl::StatusOr<v1::ListNodesResponse> Client::ListNodes(const CallOptions& call) {
  const v1::ListNodesRequest request;
  return STRATA_SDK_UNARY_(ListNodesResponse, ListNodes);
}

absl::StatusOr<v1::Node> Client::GetNode(std::string_view name, const CallOptions& call) {
  v1::GetNodeRequest request;
  request.set_name(std::string(name));
  return STRATA_SDK_UNARY_(Node, GetNode);
}

absl::StatusOr<v1::Node> Client::DrainNode(std::string_view name, const CallOptions& call) {
  v1::DrainNodeRequest request;
  request.set_name(std::string(name));
  return STRATA_SDK_UNARY_(Node, DrainNode);
}

absl::StatusOr<v1::Node> Client::ResumeNode(std::string_view name, const CallOptions& call) {
  v1::ResumeNodeRequest request;
  request.set_name(std::string(name));
  return STRATA_SDK_UNARY_(Node, ResumeNode);
}

absl::Status Client::RemoveNode(std::string_view name, bool force, const CallOptions& call) {
  v1::RemoveNodeRequest request;
  request.set_name(std::string(name));
  request.set_force(force);
  return STRATA_SDK_UNARY_(RemoveNodeResponse, RemoveNode).status();
}

absl::StatusOr<v1::RemoveNodeResponse> Client::RemoveGoneNodes(const CallOptions& call) {
  v1::RemoveNodeRequest request;
  request.set_gone(true);
  return STRATA_SDK_UNARY_(RemoveNodeResponse, RemoveNode);
}

absl::StatusOr<v1::ListAuditResponse> Client::ListAudit(const v1::ListAuditRequest& request,
                                                        const CallOptions& call) {
  return impl_->Unary<v1::ListAuditResponse>(call, [&](auto* context, auto* response) {
    return impl_->audit().ListAudit(context, request, response);
  });
}

absl::StatusOr<v1::CreateTokenResponse> Client::CreateToken(const v1::CreateTokenRequest& request,
                                                            const CallOptions& call) {
  return impl_->Unary<v1::CreateTokenResponse>(call, [&](auto* context, auto* response) {
    return impl_->tokens().CreateToken(context, request, response);
  });
}

absl::Status Client::Diagnose(const v1::DiagnoseRequest& request,
                              const DiagnoseProgressFn& progress, const CallOptions& call) {
  return impl_->ServerStream<v1::DiagnoseProgress>(
      call, [&](auto* context) { return impl_->doctor().Diagnose(context, request); },
      [&](v1::DiagnoseProgress&& message) { progress(message); });
}

absl::StatusOr<v1::RevokeCertificatesResponse> Client::RevokeCertificates(
    const v1::RevokeCertificatesRequest& request, const CallOptions& call) {
  return impl_->Unary<v1::RevokeCertificatesResponse>(call, [&](auto* context, auto* response) {
    return impl_->certificates().RevokeCertificates(context, request, response);
  });
}

absl::StatusOr<v1::AuthorityState> Client::ChangeAuthority(
    const v1::ChangeAuthorityRequest& request, const CallOptions& call) {
  return impl_->Unary<v1::AuthorityState>(call, [&](auto* context, auto* response) {
    return impl_->certificates().ChangeAuthority(context, request, response);
  });
}

absl::StatusOr<v1::CreateKeyResponse> Client::CreateKey(const v1::CreateKeyRequest& request,
                                                        const CallOptions& call) {
  return STRATA_SDK_UNARY_(CreateKeyResponse, CreateKey);
}

absl::StatusOr<v1::ListKeysResponse> Client::ListKeys(const CallOptions& call) {
  const v1::ListKeysRequest request;
  return STRATA_SDK_UNARY_(ListKeysResponse, ListKeys);
}

absl::StatusOr<v1::RevokeKeyResponse> Client::RevokeKey(std::string_view id, bool cancel,
                                                        const CallOptions& call) {
  v1::RevokeKeyRequest request;
  request.set_id(std::string(id));
  request.set_cancel(cancel);
  return STRATA_SDK_UNARY_(RevokeKeyResponse, RevokeKey);
}

absl::StatusOr<v1::ListModelsResponse> Client::ListModels(const CallOptions& call) {
  const v1::ListModelsRequest request;
  return STRATA_SDK_UNARY_(ListModelsResponse, ListModels);
}

absl::StatusOr<v1::Model> Client::GetModel(std::string_view name, const CallOptions& call) {
  v1::GetModelRequest request;
  request.set_name(std::string(name));
  return STRATA_SDK_UNARY_(Model, GetModel);
}

absl::Status Client::RemoveModel(std::string_view name, bool force, const CallOptions& call) {
  v1::RemoveModelRequest request;
  request.set_name(std::string(name));
  request.set_force(force);
  return STRATA_SDK_UNARY_(RemoveModelResponse, RemoveModel).status();
}

absl::StatusOr<v1::Plan> Client::PlanModel(std::string_view model, const v1::LoadOptions& options,
                                           const CallOptions& call) {
  v1::PlanModelRequest request;
  request.set_model(std::string(model));
  *request.mutable_options() = options;
  ASSIGN_OR_RETURN(v1::PlanModelResponse response, STRATA_SDK_UNARY_(PlanModelResponse, PlanModel));
  return std::move(*response.mutable_plan());
}

absl::StatusOr<v1::Plan> Client::PlanMachines(const v1::PlanMachinesRequest& request,
                                              const CallOptions& call) {
  ASSIGN_OR_RETURN(v1::PlanMachinesResponse response, PredictPlan(request, call));
  return std::move(*response.mutable_plan());
}

absl::StatusOr<v1::PlanMachinesResponse> Client::PredictPlan(const v1::PlanMachinesRequest& request,
                                                             const CallOptions& call) {
  return impl_->Unary<v1::PlanMachinesResponse>(call, [&](auto* context, auto* answer) {
    return impl_->planning().PlanMachines(context, request, answer);
  });
}

absl::Status Client::UnloadModel(std::string_view model, bool force, const CallOptions& call) {
  v1::UnloadModelRequest request;
  request.set_model(std::string(model));
  request.set_force(force);
  return STRATA_SDK_UNARY_(UnloadModelResponse, UnloadModel).status();
}

absl::StatusOr<v1::Plan> Client::ResizeModel(std::string_view model, uint64_t kv_tokens,
                                             const CallOptions& call) {
  v1::ResizeModelRequest request;
  request.set_model(std::string(model));
  request.set_kv_tokens(kv_tokens);
  ASSIGN_OR_RETURN(v1::ResizeModelResponse response,
                   STRATA_SDK_UNARY_(ResizeModelResponse, ResizeModel));
  return std::move(*response.mutable_plan());
}

absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions(const CallOptions& call) {
  const v1::ListSessionsRequest request;
  return STRATA_SDK_UNARY_(ListSessionsResponse, ListSessions);
}

absl::Status Client::CancelSession(std::string_view request_id, const CallOptions& call) {
  v1::CancelSessionRequest request;
  request.set_request_id(std::string(request_id));
  return STRATA_SDK_UNARY_(CancelSessionResponse, CancelSession).status();
}

absl::Status Client::CancelSessionOf(std::string_view key, std::string_view request_id,
                                     const CallOptions& call) {
  v1::CancelSessionRequest request;
  request.set_request_id(std::string(request_id));
  request.set_key(std::string(key));
  return STRATA_SDK_UNARY_(CancelSessionResponse, CancelSession).status();
}

#undef STRATA_SDK_UNARY_

namespace {

absl::Status NoModelError() {
  return Error(absl::StatusCode::kInternal, "ANSWER_INCOMPLETE",
               "the coordinator ended the call without saying what became of the model")
      .Hint("see `strata model list`");
}

}  // namespace

absl::StatusOr<v1::Model> Client::AddModel(const v1::AddModelRequest& request,
                                           const ModelProgressFn& progress,
                                           const CallOptions& call) {
  std::optional<v1::Model> model;
  RETURN_IF_ERROR(impl_->ServerStream<v1::ModelProgress>(
      call, [&](auto* context) { return impl_->admin().AddModel(context, request); },
      [&](v1::ModelProgress&& message) {
        if (message.has_model()) model = message.model();
        if (progress) progress(message);
      }));
  return model.has_value() ? absl::StatusOr<v1::Model>(*std::move(model)) : NoModelError();
}

absl::StatusOr<v1::Model> Client::PullModel(const v1::PullModelRequest& request,
                                            const ModelProgressFn& progress,
                                            const CallOptions& call) {
  std::optional<v1::Model> model;
  RETURN_IF_ERROR(impl_->ServerStream<v1::ModelProgress>(
      call, [&](auto* context) { return impl_->admin().PullModel(context, request); },
      [&](v1::ModelProgress&& message) {
        if (message.has_model()) model = message.model();
        if (progress) progress(message);
      }));
  return model.has_value() ? absl::StatusOr<v1::Model>(*std::move(model)) : NoModelError();
}

absl::Status Client::LoadModel(const v1::LoadModelRequest& request, const LoadProgressFn& progress,
                               const CallOptions& call) {
  bool ready = false;
  RETURN_IF_ERROR(impl_->ServerStream<v1::LoadModelProgress>(
      call, [&](auto* context) { return impl_->admin().LoadModel(context, request); },
      [&](v1::LoadModelProgress&& message) {
        ready = ready || message.ready();
        if (progress) progress(message);
      }));
  return ready || request.detach() ? absl::OkStatus() : NoModelError();
}

absl::Status Client::MoveModel(const v1::MoveModelRequest& request, const LoadProgressFn& progress,
                               const CallOptions& call) {
  bool ready = request.detach() || request.plan_only();
  RETURN_IF_ERROR(impl_->ServerStream<v1::LoadModelProgress>(
      call, [&](auto* context) { return impl_->admin().MoveModel(context, request); },
      [&](v1::LoadModelProgress&& message) {
        ready = ready || message.ready();
        if (progress) progress(message);
      }));
  return ready ? absl::OkStatus() : NoModelError();
}

absl::StatusOr<v1::ModelCheck> Client::CheckModel(const v1::CheckModelRequest& request,
                                                  const CheckProgressFn& progress,
                                                  const CallOptions& call) {
  std::optional<v1::ModelCheck> check;
  RETURN_IF_ERROR(impl_->ServerStream<v1::CheckModelProgress>(
      call, [&](auto* context) { return impl_->admin().CheckModel(context, request); },
      [&](v1::CheckModelProgress&& message) {
        if (message.has_check()) check = message.check();
        if (progress) progress(message);
      }));
  if (!check.has_value()) {
    return Error(absl::StatusCode::kInternal, "ANSWER_INCOMPLETE",
                 "the coordinator ended the call without saying how the check came out");
  }
  return *std::move(check);
}

}  // namespace strata::sdk
