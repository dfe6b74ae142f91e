// Who may make which admin calls, and those about API keys and requests in flight.
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/service/calls/admin_service.h"
#include "coordinator/service/calls/authorization.h"

namespace strata {
namespace {

uint64_t UnixNow() { return static_cast<uint64_t>(std::time(nullptr)); }

v1::Key KeyMessage(const StoredKey& key) {
  v1::Key message;
  message.set_id(key.id);
  message.set_name(key.name);
  message.set_admin(key.admin);
  message.set_created(key.created);
  message.set_last_used(key.last_used);
  message.set_revoked(key.revoked);
  message.set_requests_in_flight(key.limits.requests_in_flight);
  message.set_requests_per_minute(key.limits.requests_per_minute);
  message.set_tokens_per_minute(key.limits.tokens_per_minute);
  message.set_max_priority(key.limits.max_priority);
  message.set_guaranteed(key.limits.guaranteed);
  return message;
}

// "ci (key-1a2b3c4d)".
std::string KeyTitle(const v1::Key& key) {
  return key.name().empty() ? key.id() : key.name() + " (" + key.id() + ")";
}

}  // namespace

absl::StatusOr<std::shared_ptr<Caller>> AdminServiceImpl::Authenticate(CallContext* context,
                                                                       std::string_view name,
                                                                       OperatorCall call) {
  // What a key that is no admin key opens is for clients, too.
  absl::Status may = CheckPeerRole(
      context->grpc(), call == OperatorCall::kOwn ? CallFor::kUsers : CallFor::kOperators);
  std::shared_ptr<Caller> caller;
  if (may.ok()) {
    auto found = coordinator_->keys()->AuthenticateOperator(AuthorizationOf(context->grpc()), call,
                                                            UnixNow());
    may = found.status();
    if (found.ok()) caller = *std::move(found);
  }
  if (!may.ok()) {
    AuditRefusal(options_.audit, AuditCallOf(context, name), may);
    return may;
  }
  return caller;
}

std::string AdminServiceImpl::ChangedBy(const v1::CreateKeyResponse& answer) {
  return KeyTitle(answer.key());
}

std::string AdminServiceImpl::ChangedBy(const v1::RevokeKeyResponse& answer) {
  return KeyTitle(answer.key());
}

std::string AdminServiceImpl::ChangedBy(const v1::RemoveNodeResponse& answer) {
  return absl::StrJoin(answer.removed(), ", ");
}

grpc::Status AdminServiceImpl::ListSessions(CallContext* context, const v1::ListSessionsRequest*,
                                            v1::ListSessionsResponse* response) {
  const auto caller = Authenticate(context, "ListSessions", OperatorCall::kOwn);
  if (!caller.ok()) {
    return ToGrpc(caller.status());
  }
  auto sessions = *caller == nullptr ? coordinator_->requests()->List()
                                     : coordinator_->requests()->List((*caller)->id());
  if (!sessions.ok()) {
    return ToGrpc(sessions.status());
  }
  for (v1::Session& session : *sessions) {
    *response->add_sessions() = std::move(session);
  }
  return grpc::Status::OK;
}

grpc::Status AdminServiceImpl::CancelSession(CallContext* context,
                                             const v1::CancelSessionRequest* request,
                                             v1::CancelSessionResponse*) {
  const auto caller = Authenticate(context, "CancelSession", OperatorCall::kOwn);
  if (!caller.ok()) {
    return ToGrpc(caller.status());
  }
  LiveRequests::OfKey key;
  if (*caller != nullptr) {
    key = (*caller)->id();  // Whatever the request says.
  } else if (request->has_key()) {
    key = request->key();
  }
  if (*caller != nullptr) {
    return ToGrpc(coordinator_->requests()->CancelById(request->request_id(), key));
  }
  // Whoever ends what is another's administrates.
  AuditCall call = AuditCallOf(context, "CancelSession");
  call.object = request->request_id();
  AuditedCall audited(options_.audit, call);
  const absl::Status cancelled = coordinator_->requests()->CancelById(request->request_id(), key);
  audited.End(cancelled);
  return ToGrpc(cancelled);
}

grpc::Status AdminServiceImpl::CreateKey(CallContext*, const v1::CreateKeyRequest* request,
                                         v1::CreateKeyResponse* response) {
  const KeySpec spec{.name = request->name(),
                     .admin = request->admin(),
                     .limits = {.requests_in_flight = request->requests_in_flight(),
                                .requests_per_minute = request->requests_per_minute(),
                                .tokens_per_minute = request->tokens_per_minute(),
                                .max_priority = request->max_priority(),
                                .guaranteed = request->guaranteed()}};
  auto made = coordinator_->keys()->Create(spec, UnixNow(), coordinator_->Now());
  if (!made.ok()) {
    return ToGrpc(made.status());
  }
  *response->mutable_key() = KeyMessage(made->key);
  response->set_secret(std::move(made->secret));
  return grpc::Status::OK;
}

grpc::Status AdminServiceImpl::ListKeys(CallContext*, const v1::ListKeysRequest*,
                                        v1::ListKeysResponse* response) {
  for (const StoredKey& key : coordinator_->keys()->List()) {
    *response->add_keys() = KeyMessage(key);
  }
  return grpc::Status::OK;
}

grpc::Status AdminServiceImpl::RevokeKey(CallContext*, const v1::RevokeKeyRequest* request,
                                         v1::RevokeKeyResponse* response) {
  const auto revoked = coordinator_->keys()->Revoke(request->id(), UnixNow());
  if (!revoked.ok()) {
    return ToGrpc(revoked.status());
  }
  *response->mutable_key() = KeyMessage(*revoked);
  if (request->cancel()) {
    const auto cancelled = coordinator_->requests()->CancelAllOf(request->id());
    if (!cancelled.ok()) {
      return ToGrpc(cancelled.status());
    }
    response->set_cancelled(*cancelled);
  }
  return grpc::Status::OK;
}

}  // namespace strata
