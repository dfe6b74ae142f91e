// Gathers the facts of the whole cluster for `strata doctor` and `strata support-bundle`.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_DOCTOR_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_DOCTOR_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/examination/examine.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/service/calls/refusals.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/diagnosis.grpc.pb.h"

namespace strata {

struct DoctorOptions {
  ExamineOptions examine;  // Of the coordinator itself.
  std::function<absl::StatusOr<std::string>()> metrics;
  AuditLog* audit = nullptr;  // Records who may not ask; null: nobody is recorded.
};

// DoctorService. Any thread. Nothing is owned; all outlive it.
class DoctorServiceImpl final : public IoService {
 public:
  DoctorServiceImpl(Coordinator* coordinator, const Transport* transport, Refusals* refusals,
                    DoctorOptions options);
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class Round;
  grpc::Status Diagnose(CallContext* context, const v1::DiagnoseRequest* request,
                        CallWriter<v1::DiagnoseProgress>* writer);
  v1::MachineFacts Self(const v1::DiagnoseRequest& request) const;

  Coordinator* const coordinator_;
  const Transport* const transport_;
  Refusals* const refusals_;
  const DoctorOptions options_;
  std::unique_ptr<v1::DoctorService::AsyncService> service_;
  CallThreads threads_;  // Last: what it runs uses the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_DOCTOR_SERVICE_H_
