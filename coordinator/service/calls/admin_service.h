// What the admin CLI calls.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_ADMIN_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_ADMIN_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/service/calls/audited_call.h"
#include "coordinator/service/calls/model_intake.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/admin.grpc.pb.h"

namespace strata {

struct AdminOptions {
  std::string http_address;  // Shown by status.
  ModelIntakeOptions intake;
  // Calls at once that may take long: adding, removing, loading and resizing models; one more is
  // refused. The others have threads of their own.
  size_t max_long_calls = 64;
  // Of the others, those that may wait for a thread; one more is refused.
  size_t max_waiting_calls = 4096;
  // Where calls that change something are recorded, and those that are refused; null: nowhere.
  // Outlives the service.
  AuditLog* audit = nullptr;
  // Revokes the certificates of a node that is removed, and says whether it did; of one that is
  // alive only if that takes from its worker what it came with. Empty: there are none.
  std::function<absl::StatusOr<bool>(const std::string& node, bool alive)> revoke_node{};
};

// Any thread.
class AdminServiceImpl final : public IoService {
  using This = AdminServiceImpl;

 public:
  // `coordinator` outlives the service.
  AdminServiceImpl(Coordinator* coordinator, AdminOptions options);
  ~AdminServiceImpl() override = default;  // The server has ended.

  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

  // Ends streams that wait.
  void Shutdown() {
    stopping_ = true;
    intake_.Stop();
  }

 private:
  // KeyRing::AuthenticateOperator of the call `name`; a refusal is recorded.
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(CallContext* context, std::string_view name,
                                                       OperatorCall call);
  AuditCall AuditCallOf(CallContext* context, std::string_view name) const {
    return CallerOf(context->grpc(), coordinator_->keys(), name);
  }
  // The handler `method`, for those who may make such a call.
  template <typename Method>
  auto Guarded(std::string_view name, Method method, OperatorCall call = OperatorCall::kAny) {
    return [this, name, method, call](CallContext* context, auto... rest) -> grpc::Status {
      const absl::Status may = Authenticate(context, name, call).status();
      return may.ok() ? std::invoke(method, this, context, rest...) : ToGrpc(may);
    };
  }
  // Likewise of a call that changes something, and so is recorded.
  template <typename Method>
  auto Audited(std::string_view name, Method method) {
    return Guarded(name,
                   [name, method](This* self, CallContext* context, const auto* request,
                                  auto* answer) -> grpc::Status {
                     if (!Changes(*request)) {
                       return std::invoke(method, self, context, request, answer);
                     }
                     AuditCall call = self->AuditCallOf(context, name);
                     call.object = ObjectOf(*request);
                     AuditedCall audited(self->options_.audit, call);
                     const grpc::Status status =
                         std::invoke(method, self, context, request, answer);
                     if (const std::string object = ChangedBy(*answer); !object.empty()) {
                       audited.SetObject(object);
                     }
                     audited.End(status);
                     return status;
                   });
  }
  template <typename Request>
  static bool Changes(const Request&) {
    return true;
  }
  static bool Changes(const v1::MoveModelRequest& request) { return !request.plan_only(); }
  // What the answer says of what was changed; "": what the request says.
  template <typename Answer>
  static std::string ChangedBy(const Answer&) {
    return "";
  }
  static std::string ChangedBy(const v1::CreateKeyResponse& answer);
  static std::string ChangedBy(const v1::RevokeKeyResponse& answer);
  static std::string ChangedBy(const v1::RemoveNodeResponse& answer);

  // NodeAdmin::Remove; a node whose certificates can be revoked need not have left.
  absl::Status RemoveAndRevoke(const std::string& name, bool force);

  // Tells where a model goes, and how far it is until it is ready there.
  using ProgressFn = std::function<absl::StatusOr<v1::LoadModelProgress>()>;
  grpc::Status Follow(const absl::StatusOr<v1::Plan>& plan, bool detach, const ProgressFn& next,
                      CallContext* context, CallWriter<v1::LoadModelProgress>* writer) const;

  // Handlers, which wait.
  grpc::Status GetStatus(CallContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response);
  grpc::Status ListNodes(CallContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response);
  grpc::Status GetNode(CallContext*, const v1::GetNodeRequest* request, v1::Node* response);
  grpc::Status DrainNode(CallContext*, const v1::DrainNodeRequest* request, v1::Node* response);
  grpc::Status ResumeNode(CallContext*, const v1::ResumeNodeRequest* request, v1::Node* response);
  grpc::Status RemoveNode(CallContext*, const v1::RemoveNodeRequest* request,
                          v1::RemoveNodeResponse* response);
  grpc::Status AddModel(CallContext* context, const v1::AddModelRequest* request,
                        CallWriter<v1::ModelProgress>* writer);
  // It records itself: its name comes with the first message.
  grpc::Status UploadModel(CallContext* context,
                           CallStream<v1::ModelProgress, v1::UploadModelRequest>* stream);
  grpc::Status PullModel(CallContext* context, const v1::PullModelRequest* request,
                         CallWriter<v1::ModelProgress>* writer);
  grpc::Status ListModels(CallContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response);
  grpc::Status GetModel(CallContext*, const v1::GetModelRequest* request, v1::Model* response);
  grpc::Status RemoveModel(CallContext*, const v1::RemoveModelRequest* request,
                           v1::RemoveModelResponse*);
  grpc::Status PlanModel(CallContext*, const v1::PlanModelRequest* request,
                         v1::PlanModelResponse* response);
  grpc::Status LoadModel(CallContext* context, const v1::LoadModelRequest* request,
                         CallWriter<v1::LoadModelProgress>* writer);
  grpc::Status UnloadModel(CallContext*, const v1::UnloadModelRequest* request,
                           v1::UnloadModelResponse*);
  grpc::Status MoveModel(CallContext* context, const v1::MoveModelRequest* request,
                         CallWriter<v1::LoadModelProgress>* writer);
  grpc::Status ResizeModel(CallContext*, const v1::ResizeModelRequest* request,
                           v1::ResizeModelResponse* response);
  grpc::Status CheckModel(CallContext* context, const v1::CheckModelRequest* request,
                          CallWriter<v1::CheckModelProgress>* writer);
  grpc::Status ListSessions(CallContext* context, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response);
  grpc::Status CancelSession(CallContext* context, const v1::CancelSessionRequest* request,
                             v1::CancelSessionResponse*);
  grpc::Status CreateKey(CallContext*, const v1::CreateKeyRequest* request,
                         v1::CreateKeyResponse* response);
  grpc::Status ListKeys(CallContext*, const v1::ListKeysRequest*, v1::ListKeysResponse* response);
  grpc::Status RevokeKey(CallContext*, const v1::RevokeKeyRequest* request,
                         v1::RevokeKeyResponse* response);

  Coordinator* const coordinator_;
  const AdminOptions options_;
  std::atomic<bool> stopping_ = false;
  ModelIntake intake_;
  std::unique_ptr<v1::AdminService::AsyncService> service_;
  CallThreads quick_;  // Last: what they run uses the others.
  CallThreads changes_;
  CallThreads long_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_ADMIN_SERVICE_H_
