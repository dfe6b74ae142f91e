// How machines and people get certificates: tokens for operators to make, and joining by them.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_JOINING_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_JOINING_SERVICE_H_

#include <cstddef>
#include <memory>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/service/calls/joining_desk.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/joining.grpc.pb.h"

namespace strata {

// TokenService. `coordinator`, `desk` and `audit` outlive it.
class TokenServiceImpl final : public IoService {
 public:
  TokenServiceImpl(Coordinator* coordinator, JoiningDesk* desk, AuditLog* audit);
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  grpc::Status CreateToken(CallContext* context, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response);

  Coordinator* const coordinator_;
  JoiningDesk* const desk_;
  AuditLog* const audit_;
  std::unique_ptr<v1::TokenService::AsyncService> service_;
  CallThreads threads_;  // Last: what it runs uses the others.
};

// What the port for joining takes at once. A joining takes a fraction of a millisecond of a
// processor, and a write of the store.
struct JoiningCallsOptions {
  size_t threads = 2;
  size_t waiting = 64;  // One more is refused.
};

// JoiningService, on a port that anybody can reach: few calls at a time, small messages.
// `coordinator`, `desk` and `audit` outlive it.
class JoiningServiceImpl final : public IoService {
 public:
  JoiningServiceImpl(Coordinator* coordinator, JoiningDesk* desk, AuditLog* audit,
                     const JoiningCallsOptions& options);
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  grpc::Status Join(CallContext* context, const v1::JoinRequest* request,
                    v1::JoinResponse* response);

  Coordinator* const coordinator_;
  JoiningDesk* const desk_;
  AuditLog* const audit_;
  std::unique_ptr<v1::JoiningService::AsyncService> service_;
  CallThreads threads_;  // Last: what it runs uses the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_JOINING_SERVICE_H_
