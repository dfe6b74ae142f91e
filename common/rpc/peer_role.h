// Who may make a call, by the certificate that it came with.
#ifndef STRATA_COMMON_RPC_PEER_ROLE_H_
#define STRATA_COMMON_RPC_PEER_ROLE_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/certificates/authority.h"

namespace grpc {
class AuthContext;
class ServerContext;
}  // namespace grpc

namespace strata {

// Those that a call is for. A coordinator's certificate is good for all: it is on the machine that
// has everything.
enum class CallFor {
  kMembers,    // Workers: control streams, links, weights.
  kUsers,      // Clients and operators: requests.
  kOperators,  // All that administrates.
};

// The certificate (PEM) that a connection was opened with; "" in plain text.
std::string PeerCertificate(const grpc::AuthContext& peer);
std::string PeerCertificate(const grpc::ServerContext& context);
// Whom it names; nobody where it names no role.
std::optional<CertificateHolder> PeerCertificateHolder(const grpc::ServerContext& context);

// PERMISSION_DENIED (ROLE_MAY_NOT) where the caller's certificate names another role. OK in plain
// text, and for a certificate that names none: that of an authority of one's own, which `strata
// cluster` did not make.
absl::Status CheckPeerRole(const grpc::ServerContext& context, CallFor whom);

// Told of calls that the two checks here refuse, each by its name. Any thread; must not wait.
using OnRefusedCall = std::function<void(const grpc::ServerContext& context, std::string_view call,
                                         const absl::Status& why)>;

// Whom the caller's certificate names, for people, as in "operator anna", or "certificate NAME"
// where it names no role. "" in plain text.
std::string PeerHolder(const grpc::ServerContext& context);

// Its address, without a port.
std::string PeerAddress(const grpc::ServerContext& context);

// PERMISSION_DENIED (NOT_YOUR_NAME) where the caller has a worker's certificate, and that is of
// another than `node`.
absl::Status CheckPeerIsNode(const grpc::ServerContext& context, const std::string& node);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_PEER_ROLE_H_
