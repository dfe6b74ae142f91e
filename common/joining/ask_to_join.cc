#include "common/joining/ask_to_join.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/certificates/authority.h"
#include "common/discovery/ask_network.h"
#include "common/rpc/address.h"
#include "common/rpc/connection_probe.h"
#include "common/rpc/status.h"
#include "common/rpc/tls_files.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "strata/v1/joining.grpc.pb.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kPatience{15};

// Whether another coordinator that was found may be the one: this one is none of the token's
// authority, or cannot be reached by its certificate's names.
bool MayBeElsewhere(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         ReasonOf(status).starts_with("TLS_");
}

}  // namespace

absl::StatusOr<std::string> KeyToJoinWith(const std::string& tls_dir) {
  std::ifstream in(tls_dir + "/key.pem", std::ios::binary);
  const std::string before((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return MakeCertificateRequest(before).ok() ? before : MakePrivateKey();
}

absl::StatusOr<v1::JoinResponse> AskToJoin(const v1::JoinToken& token, v1::JoinRequest request) {
  const std::string where = "cannot join at " + token.join_address();
  auto authority = FetchAuthority(token.join_address(),
                                  absl::BytesToHexString(token.authority_sha256()), kPatience);
  if (!authority.ok()) {
    return Annotate(authority.status(), where);
  }
  request.set_secret(token.secret());
  const auto channel = Transport::TrustingOnly(*authority).MakeChannel(token.join_address());
  const auto stub = v1::JoiningService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::JoinResponse response;
  const absl::Status status = FromGrpc(stub->Join(&context, request, &response));
  if (!status.ok()) {
    return ReasonOf(status).empty() ? Annotate(status, where) : status;
  }
  // Others beside it are trusted while the authority changes.
  const std::vector<std::string> trusted = CertificateFingerprints(response.authority());
  if (std::find(trusted.begin(), trusted.end(), absl::BytesToHexString(token.authority_sha256())) ==
      trusted.end()) {
    return Error(absl::StatusCode::kInternal, "TLS_WRONG_CA",
                 "the coordinator answered with another authority than it shows");
  }
  RETURN_IF_ERROR(CheckPeerCertificate(response.authority(), response.certificate(), "",
                                       "the certificate that the coordinator made"));
  return response;
}

absl::StatusOr<v1::JoinResponse> AskToJoinDiscovered(
    v1::JoinToken* token, const v1::JoinRequest& request,
    const std::function<void(const std::string&)>& say) {
  ASSIGN_OR_RETURN(const std::vector<FoundCoordinator> found,
                   AskNetworkFor(absl::BytesToHexString(token->authority_sha256()), say));
  absl::StatusOr<v1::JoinResponse> response;
  for (const FoundCoordinator& one : found) {
    token->set_join_address(HostPort{one.address, one.join_port}.ToString());
    token->set_address(HostPort{one.address, one.port}.ToString());
    response = AskToJoin(*token, request);
    if (response.ok() || !MayBeElsewhere(response.status())) {
      break;
    }
  }
  return response;
}

}  // namespace strata
