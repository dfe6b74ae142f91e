// Plans, for machines that need not exist too.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_PLANNING_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_PLANNING_SERVICE_H_

#include <memory>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/planning.grpc.pb.h"

namespace strata {

// PlanningService. `coordinator` and `audit` outlive it.
class PlanningServiceImpl final : public IoService {
 public:
  PlanningServiceImpl(Coordinator* coordinator, AuditLog* audit);
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  grpc::Status PlanMachines(CallContext* context, const v1::PlanMachinesRequest* request,
                            v1::PlanMachinesResponse* response);

  Coordinator* const coordinator_;
  AuditLog* const audit_;
  std::unique_ptr<v1::PlanningService::AsyncService> service_;
  CallThreads threads_;  // Last: what it runs uses the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_PLANNING_SERVICE_H_
