// What the admin CLI calls.
#ifndef STRATA_COORDINATOR_SERVICE_ADMIN_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_ADMIN_SERVICE_H_

#include <atomic>
#include <functional>
#include <set>
#include <string>

#include "common/mutex.h"
#include "coordinator/service/coordinator.h"
#include "strata/v1/admin.grpc.pb.h"

namespace strata {

struct AdminOptions {
  std::string http_address;  // Shown by status.
  std::string models_dir;    // Where uploaded and pulled models go.
  std::string hub_endpoint;  // For pulls without one of their own.
  std::string hub_token;
  uint64_t max_upload_bytes = uint64_t{1} << 42;
};

class AdminServiceImpl final : public v1::AdminService::Service {
 public:
  AdminServiceImpl(Coordinator* coordinator, AdminOptions options)
      : coordinator_(coordinator), options_(std::move(options)) {}

  // Ends streams that wait.
  void Shutdown() { stopping_ = true; }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override;
  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override;
  grpc::Status GetNode(grpc::ServerContext*, const v1::GetNodeRequest* request,
                       v1::Node* response) override;
  grpc::Status DrainNode(grpc::ServerContext*, const v1::DrainNodeRequest* request,
                         v1::Node* response) override;
  grpc::Status ResumeNode(grpc::ServerContext*, const v1::ResumeNodeRequest* request,
                          v1::Node* response) override;
  grpc::Status RemoveNode(grpc::ServerContext*, const v1::RemoveNodeRequest* request,
                          v1::RemoveNodeResponse*) override;
  grpc::Status AddModel(grpc::ServerContext* context, const v1::AddModelRequest* request,
                        grpc::ServerWriter<v1::ModelProgress>* writer) override;
  grpc::Status UploadModel(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ModelProgress, v1::UploadModelRequest>* stream) override;
  grpc::Status PullModel(grpc::ServerContext* context, const v1::PullModelRequest* request,
                         grpc::ServerWriter<v1::ModelProgress>* writer) override;
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                        v1::Model* response) override;
  grpc::Status RemoveModel(grpc::ServerContext*, const v1::RemoveModelRequest* request,
                           v1::RemoveModelResponse*) override;
  grpc::Status PlanModel(grpc::ServerContext*, const v1::PlanModelRequest* request,
                         v1::PlanModelResponse* response) override;
  grpc::Status LoadModel(grpc::ServerContext* context, const v1::LoadModelRequest* request,
                         grpc::ServerWriter<v1::LoadModelProgress>* writer) override;
  grpc::Status UnloadModel(grpc::ServerContext*, const v1::UnloadModelRequest* request,
                           v1::UnloadModelResponse*) override;
  grpc::Status ResizeModel(grpc::ServerContext*, const v1::ResizeModelRequest* request,
                           v1::ResizeModelResponse* response) override;
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response) override;
  grpc::Status CancelSession(grpc::ServerContext*, const v1::CancelSessionRequest* request,
                             v1::CancelSessionResponse*) override;

 private:
  grpc::Status TakeUpload(
      grpc::ServerContext* context, const std::string& name,
      grpc::ServerReaderWriter<v1::ModelProgress, v1::UploadModelRequest>* stream);
  // Registers the folder `path` and reports through `send`, which is false once nobody listens.
  absl::Status Register(const std::string& path, const std::string& name, const std::string& origin,
                        const std::function<bool(const v1::ModelProgress&)>& send);

  Coordinator* const coordinator_;
  const AdminOptions options_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::set<std::string> uploading_ STRATA_GUARDED_BY(mutex_);  // Names.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_ADMIN_SERVICE_H_
