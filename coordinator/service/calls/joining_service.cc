#include "coordinator/service/calls/joining_service.h"

#include <openssl/rand.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "common/app/log.h"
#include "common/certificates/authority.h"
#include "common/certificates/join_token.h"
#include "common/check.h"
#include "common/printable.h"
#include "common/rpc/address.h"
#include "common/rpc/status.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "coordinator/joining/token_book.h"
#include "coordinator/service/calls/audited_call.h"

namespace strata {
namespace {

int64_t NowS() { return static_cast<int64_t>(std::time(nullptr)); }

CallThreadsOptions ThreadsOf(const JoiningCallsOptions& calls, const std::string& hint) {
  CallThreadsOptions options;
  options.threads = calls.threads;
  options.waiting = calls.waiting;
  options.name = "joining_calls";
  options.hint = hint;
  return options;
}

constexpr size_t kMaxRequestBytes = 16 << 10;

absl::Status NoAuthority() {
  return Error(absl::StatusCode::kFailedPrecondition, "NO_AUTHORITY",
               "this coordinator signs no certificates")
      .Hint(
          "start strata-coordinator with --authority, the folder that `strata cluster init` made");
}

std::string NewSecret() {
  std::string secret(kJoinSecretBytes, '\0');
  STRATA_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()),
                          static_cast<int>(secret.size())) == 1);
  return secret;
}

std::string At(const std::string& host, const std::string& bound) {
  HostPort at = ParseHostPort(bound).value();
  at.host = host;
  return at.ToString();
}

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

void JoiningDesk::SetAddresses(const std::string& address, const std::string& join_address) {
  MutexLock lock(&mutex_);
  address_ = address;
  join_address_ = join_address;
}

absl::StatusOr<std::string> JoiningDesk::HostFor(const std::string& asked) const {
  if (!asked.empty()) {
    RETURN_IF_ERROR(CheckCertificateName(cert_, asked, "the coordinator's certificate"));
    return asked;
  }
  const std::string bound = ParseHostPort(address_).value().host;
  if (!IsAnyAddress(bound)) {
    RETURN_IF_ERROR(CheckCertificateName(cert_, bound, "the coordinator's certificate"));
    return bound;
  }
  std::vector<std::string> hosts = CertificateHosts(cert_);
  const auto dialled = std::find_if(hosts.begin(), hosts.end(),
                                    [](const std::string& host) { return !IsLoopback(host); });
  if (dialled == hosts.end()) {
    return Error(absl::StatusCode::kFailedPrecondition, "TLS_WRONG_NAME",
                 "the coordinator's certificate has no address that another machine can dial")
        .Hint(
            "make one that has: `strata cluster certificate coordinator coordinator --hosts "
            "ADDRESS`");
  }
  return *dialled;
}

absl::StatusOr<v1::CreateTokenResponse> JoiningDesk::CreateToken(
    const v1::CreateTokenRequest& request) {
  MutexLock lock(&mutex_);
  if (!joining_.has_value()) {
    return NoAuthority();
  }
  if (address_.empty()) {
    return Error(absl::StatusCode::kUnavailable, "STARTING", "the coordinator is starting")
        .Hint("try again in a moment");
  }
  ASSIGN_OR_RETURN(const std::string host, HostFor(request.host()));
  const int64_t now_s = NowS();
  ASSIGN_OR_RETURN(v1::JoinToken token, joining_->CreateToken(request, NewSecret(), now_s));
  token.set_address(At(host, address_));
  token.set_join_address(At(host, join_address_));
  v1::CreateTokenResponse response;
  response.set_token(JoinTokenText(token));
  response.set_expires_at(static_cast<uint64_t>(now_s) +
                          (request.expires_s() == 0 ? kDefaultTokenS : request.expires_s()));
  response.set_uses(std::max(1u, request.uses()));
  return response;
}

absl::StatusOr<v1::JoinResponse> JoiningDesk::Join(
    const v1::JoinRequest& request, const std::function<bool(const std::string&)>& is_member) {
  MutexLock lock(&mutex_);
  if (!joining_.has_value()) {
    return NoAuthority();
  }
  return joining_->Join(request, is_member, NowS());
}

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
  if (request->ByteSizeLong() > kMaxRequestBytes) {
    return ToGrpc(Error(absl::StatusCode::kInvalidArgument, "TLS_REQUEST_BAD",
                        "this is more than a request to join takes")
                      .Limit("bytes=" + std::to_string(kMaxRequestBytes)));
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
