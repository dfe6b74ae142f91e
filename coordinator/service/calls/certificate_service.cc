#include "coordinator/service/calls/certificate_service.h"

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "common/app/log.h"
#include "common/certificates/authority.h"
#include "common/names.h"
#include "common/printable.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "coordinator/service/calls/audited_call.h"

namespace strata {
namespace {

constexpr size_t kMaxRequestBytes = 16 << 10;

// Each takes a fraction of a millisecond; a thousand workers ask every few seconds.
CallThreadsOptions ForMembers() {
  CallThreadsOptions options;
  options.threads = 2;
  options.waiting = 4096;
  options.name = "certificate_calls";
  return options;
}

CallThreadsOptions ForOperators() {
  CallThreadsOptions options;
  options.threads = 1;
  options.waiting = 64;
  options.name = "certificate_changes";
  return options;
}

}  // namespace

CertificateServiceImpl::CertificateServiceImpl(Coordinator* coordinator, JoiningDesk* desk,
                                               AuditLog* audit)
    : coordinator_(coordinator),
      desk_(desk),
      audit_(audit),
      members_(ForMembers()),
      operators_(ForOperators()) {}

grpc::Service* CertificateServiceImpl::NewService() {
  service_ = std::make_unique<v1::CertificateService::AsyncService>();
  return service_.get();
}

void CertificateServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::CertificateService::AsyncService;
  using This = CertificateServiceImpl;
  const BlockingMethods members(service_.get(), loop, &members_);
  members.Serve(&Async::RequestGetTrust, std::bind_front(&This::GetTrust, this));
  members.Serve(&Async::RequestRenewCertificate, std::bind_front(&This::RenewCertificate, this));
  const BlockingMethods operators(service_.get(), loop, &operators_);
  operators.Serve(&Async::RequestRevokeCertificates,
                  std::bind_front(&This::RevokeCertificates, this));
  operators.Serve(&Async::RequestChangeAuthority, std::bind_front(&This::ChangeAuthority, this));
}

grpc::Status CertificateServiceImpl::GetTrust(CallContext* context,
                                              const v1::GetTrustRequest* request,
                                              v1::Trust* response) {
  const std::string cert = PeerCertificate(context->grpc());
  const auto holder = PeerCertificateHolder(context->grpc());
  const bool member = !cert.empty() && CheckPeerRole(context->grpc(), CallFor::kMembers).ok();
  if (member && CheckNodeName(request->node()).ok() &&
      request->ByteSizeLong() <= kMaxRequestBytes) {
    if (const absl::Status named = CheckPeerIsNode(context->grpc(), request->node()); !named.ok()) {
      AuditRefusal(audit_, CallerOf(context->grpc(), nullptr, "GetTrust"), named,
                   RefusedOf::kOthers);
      return ToGrpc(named);
    }
    desk_->NoteFollower(*request, cert);
    if (auto times = TimesOf(cert); times.ok()) {
      coordinator_->PostToLoop(
          [coordinator = coordinator_, node = request->node(), times = *std::move(times)] {
            coordinator->membership()->SetCertificate(node, times);
          });
    }
  }
  *response = desk_->Trust(member);
  return grpc::Status::OK;
}

grpc::Status CertificateServiceImpl::RenewCertificate(CallContext* context,
                                                      const v1::RenewCertificateRequest* request,
                                                      v1::RenewCertificateResponse* response) {
  if (request->ByteSizeLong() > kMaxRequestBytes) {
    return ToGrpc(Error(absl::StatusCode::kInvalidArgument, "TLS_REQUEST_BAD",
                        "this is more than a request for a certificate takes")
                      .Limit("bytes=" + std::to_string(kMaxRequestBytes)));
  }
  auto renewed = desk_->Renew(PeerCertificate(context->grpc()), *request);
  const auto holder = PeerCertificateHolder(context->grpc());
  const std::string peer = Printable(context->grpc().peer(), 64);
  if (!renewed.ok()) {
    LogWarn({{"peer", peer}}, "a certificate was not renewed: " + Describe(renewed.status()));
    return ToGrpc(renewed.status());
  }
  *response = *std::move(renewed);
  LogInfo({{"role", holder.has_value() ? std::string(CertificateRoleName(holder->role)) : ""},
           {"name", holder.has_value() ? Printable(holder->name, 64) : ""},
           {"peer", peer}},
          "a certificate was renewed");
  return grpc::Status::OK;
}

grpc::Status CertificateServiceImpl::RevokeCertificates(
    CallContext* context, const v1::RevokeCertificatesRequest* request,
    v1::RevokeCertificatesResponse* response) {
  KeyRing* const keys = coordinator_->keys();
  const absl::Status may = CheckOperator(context->grpc(), keys, audit_, "RevokeCertificates");
  if (!may.ok()) {
    return ToGrpc(may);
  }
  AuditCall call = CallerOf(context->grpc(), keys, "RevokeCertificates");
  call.object = Printable(request->role(), 64) + " " + Printable(request->name(), 64);
  AuditedCall audited(audit_, call);
  const auto ended = desk_->Revoke(request->role(), request->name());
  audited.End(ended.status());
  if (!ended.ok()) {
    return ToGrpc(ended.status());
  }
  response->set_ended_calls(static_cast<uint32_t>(*ended));
  LogInfo({{"role", request->role()}, {"name", request->name()}, {"ended_calls", uint64_t{*ended}}},
          "certificates were revoked");
  return grpc::Status::OK;
}

absl::StatusOr<v1::AuthorityState> CertificateServiceImpl::TakeStep(v1::AuthorityStep step) {
  ASSIGN_OR_RETURN(const auto nodes, coordinator_->nodes()->List());
  std::map<std::string, bool> alive;
  for (const v1::Node& node : nodes) {
    alive[node.name()] = node.state() != "lost";
  }
  return desk_->ChangeAuthority(step, alive);
}

grpc::Status CertificateServiceImpl::ChangeAuthority(CallContext* context,
                                                     const v1::ChangeAuthorityRequest* request,
                                                     v1::AuthorityState* response) {
  KeyRing* const keys = coordinator_->keys();
  const absl::Status may = CheckOperator(context->grpc(), keys, audit_, "ChangeAuthority");
  if (!may.ok()) {
    return ToGrpc(may);
  }
  const bool changes = request->step() != v1::AUTHORITY_STEP_UNSPECIFIED;
  AuditCall call = CallerOf(context->grpc(), keys, "ChangeAuthority");
  call.object = v1::AuthorityStep_Name(request->step());
  AuditedCall audited(changes ? audit_ : nullptr, call);
  auto state = TakeStep(request->step());
  audited.End(state.status());
  if (!state.ok()) {
    return ToGrpc(state.status());
  }
  *response = *std::move(state);
  if (changes) {
    LogInfo({{"step", call.object}, {"signer", response->signer_sha256().substr(0, 16)}},
            "the authority of the cluster changes");
  }
  return grpc::Status::OK;
}

}  // namespace strata
