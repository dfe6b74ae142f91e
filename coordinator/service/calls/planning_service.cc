#include "coordinator/service/calls/planning_service.h"

#include <functional>
#include <utility>

#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/planner/machines.h"
#include "coordinator/registry/shape_manifest.h"
#include "coordinator/service/calls/audited_call.h"

namespace strata {
namespace {

CallThreadsOptions ForPlans() {
  CallThreadsOptions options;
  options.threads = 1;  // A plan for many machines takes all of a processor.
  options.waiting = 16;
  options.name = "planning_calls";
  return options;
}

absl::StatusOr<std::shared_ptr<const ModelRuntime>> ModelOfShape(const std::string& config_json) {
  ASSIGN_OR_RETURN(ModelManifest manifest, ManifestOfShape(config_json));
  return MakeModelRuntime("config.json", std::make_shared<ModelManifest>(std::move(manifest)));
}

}  // namespace

PlanningServiceImpl::PlanningServiceImpl(Coordinator* coordinator, AuditLog* audit)
    : coordinator_(coordinator), audit_(audit), threads_(ForPlans()) {}

grpc::Service* PlanningServiceImpl::NewService() {
  service_ = std::make_unique<v1::PlanningService::AsyncService>();
  return service_.get();
}

void PlanningServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::PlanningService::AsyncService;
  const BlockingMethods calls(service_.get(), loop, &threads_);
  calls.Serve(&Async::RequestPlanMachines,
              std::bind_front(&PlanningServiceImpl::PlanMachines, this));
}

grpc::Status PlanningServiceImpl::PlanMachines(CallContext* context,
                                               const v1::PlanMachinesRequest* request,
                                               v1::PlanMachinesResponse* response) {
  const auto planned = [&]() -> absl::StatusOr<PlannedModel> {
    RETURN_IF_ERROR(CheckOperator(context->grpc(), coordinator_->keys(), audit_, "PlanMachines"));
    if (request->machines().empty() && request->has_model()) {
      return coordinator_->loads()->PlanHere(request->model(), request->options());
    }
    ASSIGN_OR_RETURN(PlannerCluster cluster, ClusterOfMachines(*request));
    if (request->has_config_json()) {
      ASSIGN_OR_RETURN(const auto model, ModelOfShape(request->config_json()));
      return coordinator_->loads()->PlanOn(*model, request->options(), std::move(cluster));
    }
    return coordinator_->loads()->PlanOn(request->model(), request->options(), std::move(cluster));
  }();
  if (!planned.ok()) {
    return ToGrpc(planned.status());
  }
  *response->mutable_plan() = planned->plan;
  for (const DraftPrediction& prediction : planned->drafts) {
    v1::PredictedDrafts* drafts = response->add_drafts();
    drafts->set_right(prediction.right);
    drafts->set_tokens_per_s(prediction.tokens_per_s);
    drafts->set_times(prediction.times);
    drafts->set_drafts(prediction.drafts);
    drafts->set_steps(prediction.steps);
  }
  return grpc::Status::OK;
}

}  // namespace strata
