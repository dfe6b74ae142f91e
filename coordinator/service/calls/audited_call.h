// Calls of operators on their way to the audit.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_AUDITED_CALL_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_AUDITED_CALL_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/rpc/call_threads.h"
#include "coordinator/audit/audit_log.h"
#include "coordinator/keys/key_ring.h"

namespace strata {

// Who makes the call `name`, and from where. `keys` null: keys are not looked at.
AuditCall CallerOf(const grpc::ServerContext& context, KeyRing* keys, std::string_view name);

// The name of what a request is about: its field name, model, id, repository or path, the first one
// that is there and not empty. No other field is looked at.
std::string ObjectOf(const google::protobuf::Message& request);

// One call that its caller may make. `log` null: nothing is recorded.
class AuditedCall {
 public:
  // On the disk when this returns.
  AuditedCall(AuditLog* log, const AuditCall& call);

  // Where that shows only later.
  void SetObject(std::string_view object) { entry_.object = object; }
  // Before its caller is told.
  void End(const grpc::Status& outcome);
  void End(const absl::Status& outcome);

 private:
  AuditLog* const log_;
  AuditEntry entry_;
};

// Whether the caller may make the call `name` of operators, by certificate and key: the errors of
// CheckPeerRole and KeyRing::AuthenticateOperator, which are recorded.
absl::Status CheckOperator(const grpc::ServerContext& context, KeyRing* keys, AuditLog* log,
                           std::string_view name);

// Records that the caller might not. `log` null: nothing.
void AuditRefusal(AuditLog* log, const AuditCall& call, const absl::Status& why,
                  RefusedOf of = RefusedOf::kOperators);

// Calls of clients and workers that were refused, on their way to the audit: written by a thread of
// its own, since most are refused on a loop that must not wait for the disk.
class RefusedCalls {
 public:
  // `log` outlives it.
  explicit RefusedCalls(AuditLog* log);

  // Any thread; does not wait. What comes while kMostWaiting wait to be written is left out.
  void Add(const grpc::ServerContext& context, std::string_view call, const absl::Status& why);

  static constexpr size_t kMostWaiting = 64;

 private:
  AuditLog* const log_;
  CallThreads thread_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_AUDITED_CALL_H_
