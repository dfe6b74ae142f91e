// How machines and people get certificates: tokens for operators to make, and joining by them.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_JOINING_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_JOINING_SERVICE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/transport.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/joining/joining.h"
#include "coordinator/service/process/coordinator.h"
#include "strata/v1/joining.grpc.pb.h"

namespace strata {

// What both services share: who may join, and where. Any thread.
class JoiningDesk {
 public:
  // Without `joining` (no authority) each call is refused with what to do. `cert` (PEM) is what the
  // coordinator shows, by whose hosts it is dialled.
  JoiningDesk(std::optional<Joining> joining, std::string cert)
      : joining_(std::move(joining)), cert_(std::move(cert)) {}

  // Where both ports are, as bound. Until then no token is made (UNAVAILABLE).
  void SetAddresses(const std::string& address, const std::string& join_address)
      STRATA_EXCLUDES(mutex_);

  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request)
      STRATA_EXCLUDES(mutex_);
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        const std::function<bool(const std::string&)>& is_member)
      STRATA_EXCLUDES(mutex_);

 private:
  // The host in a token: `asked`, or one that others can dial.
  absl::StatusOr<std::string> HostFor(const std::string& asked) const STRATA_REQUIRES(mutex_);

  Mutex mutex_;
  std::optional<Joining> joining_ STRATA_GUARDED_BY(mutex_);
  const std::string cert_;
  std::string address_ STRATA_GUARDED_BY(mutex_);
  std::string join_address_ STRATA_GUARDED_BY(mutex_);
};

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
