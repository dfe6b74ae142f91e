// CertificateService: certificates while the cluster runs.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_CERTIFICATE_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_CERTIFICATE_SERVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/service/calls/joining_desk.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/certificates.grpc.pb.h"

namespace strata {

// `coordinator`, `desk` and `audit` outlive it.
class CertificateServiceImpl final : public IoService {
 public:
  CertificateServiceImpl(Coordinator* coordinator, JoiningDesk* desk, AuditLog* audit);
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  grpc::Status GetTrust(CallContext* context, const v1::GetTrustRequest* request,
                        v1::Trust* response);
  grpc::Status RenewCertificate(CallContext* context, const v1::RenewCertificateRequest* request,
                                v1::RenewCertificateResponse* response);
  grpc::Status RevokeCertificates(CallContext* context,
                                  const v1::RevokeCertificatesRequest* request,
                                  v1::RevokeCertificatesResponse* response);
  grpc::Status ChangeAuthority(CallContext* context, const v1::ChangeAuthorityRequest* request,
                               v1::AuthorityState* response);
  absl::StatusOr<v1::AuthorityState> TakeStep(v1::AuthorityStep step);

  Coordinator* const coordinator_;
  JoiningDesk* const desk_;
  AuditLog* const audit_;
  std::unique_ptr<v1::CertificateService::AsyncService> service_;
  CallThreads members_;
  CallThreads operators_;  // Last: what they run uses the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_CERTIFICATE_SERVICE_H_
