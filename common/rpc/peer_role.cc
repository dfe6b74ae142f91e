#include "common/rpc/peer_role.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include "absl/strings/str_replace.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr char kCertificateProperty[] = "x509_pem_cert";  // GRPC_X509_PEM_CERT_PROPERTY_NAME.
constexpr char kNameProperty[] = "x509_common_name";      // GRPC_X509_CN_PROPERTY_NAME.

bool May(CertificateRole role, CallFor whom) {
  switch (role) {
    case CertificateRole::kCoordinator:
      return true;
    case CertificateRole::kWorker:
      return whom == CallFor::kMembers;
    case CertificateRole::kOperator:
      return whom == CallFor::kUsers || whom == CallFor::kOperators;
    case CertificateRole::kClient:
      return whom == CallFor::kUsers;
  }
  return false;
}

const char* Wanted(CallFor whom) {
  switch (whom) {
    case CallFor::kMembers:
      return "a worker's";
    case CallFor::kUsers:
      return "a client's or an operator's";
    case CallFor::kOperators:
      return "an operator's";
  }
  return "";
}

}  // namespace

std::string PeerCertificate(const grpc::AuthContext& peer) {
  for (const grpc::string_ref& cert : peer.FindPropertyValues(kCertificateProperty)) {
    return {cert.data(), cert.size()};
  }
  return "";
}

std::string PeerCertificate(const grpc::ServerContext& context) {
  const auto peer = context.auth_context();
  return peer == nullptr ? "" : PeerCertificate(*peer);
}

std::optional<CertificateHolder> PeerCertificateHolder(const grpc::ServerContext& context) {
  const std::string cert = PeerCertificate(context);
  auto holder = cert.empty() ? std::nullopt : std::optional(HolderOf(cert));
  return holder.has_value() && holder->ok() ? std::optional(**std::move(holder)) : std::nullopt;
}

std::string PeerHolder(const grpc::ServerContext& context) {
  if (const std::optional<CertificateHolder> holder = PeerCertificateHolder(context);
      holder.has_value()) {
    return std::string(CertificateRoleName(holder->role)) + " " + Printable(holder->name, 64);
  }
  const auto peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) {
    return "";
  }
  std::string names = "certificate";
  for (const grpc::string_ref& name : peer->FindPropertyValues(kNameProperty)) {
    names += " " + Printable(std::string_view(name.data(), name.size()), 64);
  }
  return names;
}

std::string PeerAddress(const grpc::ServerContext& context) {
  // "ipv4:10.0.0.9:5000", "ipv6:%5B::1%5D:5000".
  std::string peer =
      absl::StrReplaceAll(context.peer(), {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  peer = peer.substr(0, peer.rfind(':'));
  const size_t scheme = peer.find(':');
  return Printable(scheme == std::string::npos ? peer : peer.substr(scheme + 1), 64);
}

absl::Status CheckPeerRole(const grpc::ServerContext& context, CallFor whom) {
  const std::optional<CertificateHolder> holder = PeerCertificateHolder(context);
  if (!holder.has_value() || May(holder->role, whom)) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kPermissionDenied, "ROLE_MAY_NOT",
               "the certificate of " + Printable(holder->name, 64) + " is one for role " +
                   std::string(CertificateRoleName(holder->role)) + ", and this call wants " +
                   Wanted(whom))
      .Hint("use another --tls-dir; `strata cluster init` made one for operators");
}

absl::Status CheckPeerIsNode(const grpc::ServerContext& context, const std::string& node) {
  const std::optional<CertificateHolder> holder = PeerCertificateHolder(context);
  if (!holder.has_value() || holder->role != CertificateRole::kWorker || holder->name == node) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kPermissionDenied, "NOT_YOUR_NAME",
               "this worker's certificate is of the node " + Printable(holder->name, 64) +
                   ", and it says that it is " + Printable(node, 64))
      .Node(holder->name)
      .Hint("start it with --name " + Printable(holder->name, 64) +
            ", or have it join under the other name (`strata node token`)");
}

}  // namespace strata
