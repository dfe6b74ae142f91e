// What operators read of the audit.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_AUDIT_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_AUDIT_SERVICE_H_

#include <memory>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/audit.grpc.pb.h"

namespace strata {

// AuditService. `coordinator` and `audit` outlive it.
class AuditServiceImpl final : public IoService {
 public:
  AuditServiceImpl(Coordinator* coordinator, AuditLog* audit);
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  grpc::Status ListAudit(CallContext* context, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* response);

  Coordinator* const coordinator_;
  AuditLog* const audit_;
  std::unique_ptr<v1::AuditService::AsyncService> service_;
  CallThreads threads_;  // Last: what it runs uses the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_AUDIT_SERVICE_H_
