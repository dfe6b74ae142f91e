#include "coordinator/service/calls/joining_service.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "common/app/log.h"
#include "common/certificates/authority.h"
#include "common/certificates/join_token.h"
#include "common/check.h"
#include "common/printable.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/joining/token_book.h"
#include "coordinator/service/calls/audited_call.h"

namespace strata {
namespace {

CallThreadsOptions ThreadsOf(const JoiningCallsOptions& calls, const std::string& hint) {
  CallThreadsOptions options;
  options.threads = calls.threads;
  options.waiting = calls.waiting;
  options.name = "joining_calls";
  options.hint = hint;
  return options;
}

constexpr size_t kMaxJoinBytes = 16 << 10;

// "token 1a2b3c4d for 2 uses as worker".
std::string ObjectOfToken(const v1::CreateTokenResponse& made) {
  const auto token = ParseJoinToken(made.token());
  STRATA_CHECK(token.ok());
  const std::string_view role = token->role() == v1::CERTIFICATE_ROLE_OPERATOR ? "operator"
                                : token->role() == v1::CERTIFICATE_ROLE_CLIENT ? "client"
                                                                               : "worker";
  return TokenName(token->secret()) + " for " + std::to_string(made.uses()) +
         (made.uses() == 1 ? " use as " : " uses as ") + std::string(role);
}

}  // namespace

TokenServiceImpl::TokenServiceImpl(Coordinator* coordinator, JoiningDesk* desk, AuditLog* audit)
    : coordinator_(coordinator),
      desk_(desk),
      audit_(audit),
      threads_(ThreadsOf({}, "try again in a moment")) {}

grpc::Service* TokenServiceImpl::NewService() {
  service_ = std::make_unique<v1::TokenService::AsyncService>();
  return service_.get();
}

void TokenServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::TokenService::AsyncService;
  const BlockingMethods calls(service_.get(), loop, &threads_);
  calls.Serve(&Async::RequestCreateToken, std::bind_front(&TokenServiceImpl::CreateToken, this));
}

grpc::Status TokenServiceImpl::CreateToken(CallContext* context,
                                           const v1::CreateTokenRequest* request,
                                           v1::CreateTokenResponse* response) {
  KeyRing* const keys = coordinator_->keys();
  const absl::Status may = CheckOperator(context->grpc(), keys, audit_, "CreateToken");
  if (!may.ok()) {
    return ToGrpc(may);
  }
  AuditedCall audited(audit_, CallerOf(context->grpc(), keys, "CreateToken"));
  auto made = desk_->CreateToken(*request);
  if (made.ok()) {
    audited.SetObject(ObjectOfToken(*made));
    LogInfo({{"uses", uint64_t{made->uses()}}, {"expires_at", made->expires_at()}},
            "a token for joining was made");
  }
  audited.End(made.status());
  if (!made.ok()) {
    return ToGrpc(made.status());
  }
  *response = *std::move(made);
  return grpc::Status::OK;
}

JoiningServiceImpl::JoiningServiceImpl(Coordinator* coordinator, JoiningDesk* desk, AuditLog* audit,
                                       const JoiningCallsOptions& options)
    : coordinator_(coordinator),
      desk_(desk),
      audit_(audit),
      threads_(ThreadsOf(
          options, "try again in a moment, or raise --max-waiting-joins of strata-coordinator")) {}

grpc::Service* JoiningServiceImpl::NewService() {
  service_ = std::make_unique<v1::JoiningService::AsyncService>();
  return service_.get();
}

void JoiningServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::JoiningService::AsyncService;
  const BlockingMethods calls(service_.get(), loop, &threads_);
  calls.Serve(&Async::RequestJoin, std::bind_front(&JoiningServiceImpl::Join, this));
}

grpc::Status JoiningServiceImpl::Join(CallContext* context, const v1::JoinRequest* request,
                                      v1::JoinResponse* response) {
  if (request->ByteSizeLong() > kMaxJoinBytes) {
    return ToGrpc(Error(absl::StatusCode::kInvalidArgument, "TLS_REQUEST_BAD",
                        "this is more than a request to join takes")
                      .Limit("bytes=" + std::to_string(kMaxJoinBytes)));
  }
  const auto nodes = coordinator_->nodes()->List();
  if (!nodes.ok()) {
    return ToGrpc(nodes.status());
  }
  const auto is_member = [&](const std::string& name) {
    return std::any_of(nodes->begin(), nodes->end(),
                       [&](const v1::Node& node) { return node.name() == name; });
  };
  AuditCall call = CallerOf(context->grpc(), nullptr, "Join");
  call.who = TokenName(request->secret());
  call.object = request->name();
  auto joined = desk_->Join(*request, is_member);
  const std::string name = Printable(request->name(), 64);
  const std::string peer = Printable(context->grpc().peer(), 64);
  if (!joined.ok()) {
    AuditRefusal(audit_, call, joined.status());
    LogWarn({{"node", name}, {"peer", peer}}, "joining was refused: " + Describe(joined.status()));
    return ToGrpc(joined.status());
  }
  if (const auto holder = HolderOf(joined->certificate()); holder.ok()) {
    call.object = std::string(CertificateRoleName(holder->role)) + " " + holder->name;
  }
  AuditedCall(audit_, call).End(absl::OkStatus());
  *response = *std::move(joined);
  LogInfo({{"node", name}, {"peer", peer}}, "has a certificate of the cluster now");
  return grpc::Status::OK;
}

}  // namespace strata
