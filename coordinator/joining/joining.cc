#include "coordinator/joining/joining.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/certificates/renewal.h"
#include "common/names.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kDayS = 24 * 3600;
constexpr size_t kMaxKeys = 100'000;
constexpr char kWorkerKeys[] = "worker-key";  // The kind of their records.

std::optional<CertificateRole> RoleOf(v1::CertificateRole role) {
  switch (role) {
    case v1::CERTIFICATE_ROLE_UNSPECIFIED:
    case v1::CERTIFICATE_ROLE_WORKER:
      return CertificateRole::kWorker;
    case v1::CERTIFICATE_ROLE_OPERATOR:
      return CertificateRole::kOperator;
    case v1::CERTIFICATE_ROLE_CLIENT:
      return CertificateRole::kClient;
    default:
      return std::nullopt;
  }
}

v1::CertificateRole RoleOf(CertificateRole role) {
  switch (role) {
    case CertificateRole::kWorker:
      return v1::CERTIFICATE_ROLE_WORKER;
    case CertificateRole::kOperator:
      return v1::CERTIFICATE_ROLE_OPERATOR;
    case CertificateRole::kClient:
      return v1::CERTIFICATE_ROLE_CLIENT;
    case CertificateRole::kCoordinator:
      break;  // None is made by a token.
  }
  return v1::CERTIFICATE_ROLE_UNSPECIFIED;
}

// The cluster of an authority that can sign.
absl::StatusOr<std::string> CheckedCluster(const AuthoritySet& authority) {
  ASSIGN_OR_RETURN(std::string cluster, ClusterOf(authority.signer.cert));
  ASSIGN_OR_RETURN(const std::string key, MakePrivateKey());
  ASSIGN_OR_RETURN(const std::string request, MakeCertificateRequest(key));
  RETURN_IF_ERROR(IssueCertificate(authority.signer, request,
                                   {CertificateRole::kClient, cluster, "trial"}, {},
                                   {.not_before_s = 0, .not_after_s = 1})
                      .status());
  return cluster;
}

absl::Status CheckHosts(CertificateRole role, const v1::JoinRequest& request) {
  const bool dialled = role == CertificateRole::kWorker;
  if (dialled && request.hosts().empty()) {
    return Error(kInvalid, "BAD_HOST", "a worker needs an address by which others dial it")
        .Hint("give --hosts");
  }
  if (!dialled && !request.hosts().empty()) {
    return Error(kInvalid, "BAD_HOST", "nobody dials who joins as an operator or a client")
        .Hint("leave --hosts out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Joining> Joining::Make(JoiningOptions options) {
  ASSIGN_OR_RETURN(std::string cluster, CheckedCluster(options.authority));
  ASSIGN_OR_RETURN(const std::string fingerprint,
                   CertificateFingerprint(options.authority.signer.cert));
  Joining joining(std::move(options), std::move(cluster), absl::HexStringToBytes(fingerprint));
  RETURN_IF_ERROR(joining.Load());
  return joining;
}

Joining::Joining(JoiningOptions options, std::string cluster, std::string fingerprint)
    : options_(std::move(options)),
      cluster_(std::move(cluster)),
      fingerprint_(std::move(fingerprint)),
      tokens_(options_.max_tokens, options_.store) {}

absl::Status Joining::Load() {
  if (options_.store == nullptr) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(tokens_.Load());
  ASSIGN_OR_RETURN(const auto keys, options_.store->ListRecords(kWorkerKeys));
  for (const StoredRecord& key : keys) {
    keys_[key.name] = key.value.value_or("");
  }
  return absl::OkStatus();
}

absl::Status Joining::SetAuthority(AuthoritySet authority) {
  ASSIGN_OR_RETURN(std::string cluster, CheckedCluster(authority));
  ASSIGN_OR_RETURN(const std::string fingerprint, CertificateFingerprint(authority.signer.cert));
  cluster_ = std::move(cluster);
  fingerprint_ = absl::HexStringToBytes(fingerprint);
  options_.authority = std::move(authority);
  return absl::OkStatus();
}

std::string Joining::signer_sha256() const { return absl::BytesToHexString(fingerprint_); }

absl::StatusOr<v1::JoinToken> Joining::CreateToken(const v1::CreateTokenRequest& request,
                                                   const std::string& secret, int64_t now_s) {
  const std::optional<CertificateRole> role = RoleOf(request.role());
  if (!role.has_value() || request.expires_s() > kMaxTokenS || request.uses() > kMaxTokenUses) {
    return Error(kInvalid, "BAD_TOKEN_TERMS", "there can be no such token")
        .Limit("expires_s=" + std::to_string(kMaxTokenS) +
               ", uses=" + std::to_string(kMaxTokenUses))
        .Hint(
            "a token is for workers, operators or clients, lapses within 30 days, and has a number "
            "of uses");
  }
  const TokenTerms terms = {
      .role = *role,
      .expires_at_s =
          now_s +
          (request.expires_s() == 0 ? kDefaultTokenS : static_cast<int64_t>(request.expires_s())),
      .uses = request.uses() == 0 ? 1 : request.uses()};
  RETURN_IF_ERROR(tokens_.Add(secret, terms, now_s));
  v1::JoinToken token;
  token.set_authority_sha256(fingerprint_);
  token.set_secret(secret);
  token.set_role(RoleOf(*role));
  return token;
}

absl::StatusOr<v1::JoinResponse> Joining::Join(
    const v1::JoinRequest& request, const std::function<bool(const std::string&)>& is_member,
    int64_t now_s) {
  ASSIGN_OR_RETURN(const CertificateRole role, tokens_.RoleOf(request.secret(), now_s));
  RETURN_IF_ERROR(CheckNodeName(request.name()));
  RETURN_IF_ERROR(CheckHosts(role, request));
  ASSIGN_OR_RETURN(const std::string key, RequestKeyDigest(request.certificate_request()));
  const bool worker = role == CertificateRole::kWorker;
  const auto before = keys_.find(request.name());
  if (worker && is_member(request.name()) && (before == keys_.end() || before->second != key)) {
    return Error(absl::StatusCode::kAlreadyExists, "NAME_TAKEN",
                 "there is a node " + request.name() + " already")
        .Node(request.name())
        .Hint(
            "give --name another name; or, if this machine takes its place, stop it there and run "
            "`strata node remove " +
            request.name() + "`");
  }
  v1::JoinResponse response;
  const CertificateHolder holder = {role, cluster_, request.name()};
  ASSIGN_OR_RETURN(
      *response.mutable_certificate(),
      IssueCertificate(options_.authority.signer, request.certificate_request(), holder,
                       std::vector<std::string>(request.hosts().begin(), request.hosts().end()),
                       TermOfIssue(revocations_.NextIssueS(holder, now_s),
                                   options_.certificate_days * kDayS + kBackdatedS)));
  response.set_authority(options_.authority.Trusted());
  response.set_cluster(cluster_);
  const StoredRecord of_worker = {kWorkerKeys, request.name(), key};
  RETURN_IF_ERROR(tokens_.Use(request.secret(), now_s, worker ? &of_worker : nullptr));
  if (worker) {
    keys_[request.name()] = key;
    ForgetOneOf(is_member);
  }
  return response;
}

void Joining::ForgetOneOf(const std::function<bool(const std::string&)>& is_member) {
  if (keys_.size() <= kMaxKeys) {
    return;
  }
  const auto left = std::find_if(keys_.begin(), keys_.end(),
                                 [&](const auto& one) { return !is_member(one.first); });
  if (left == keys_.end()) {
    return;
  }
  // If the store keeps it, the next start does so once more.
  if (options_.store != nullptr) {
    options_.store->ChangeRecords({{kWorkerKeys, left->first}}).IgnoreError();
  }
  keys_.erase(left);
}

absl::StatusOr<v1::RenewCertificateResponse> Joining::Renew(const std::string& cert,
                                                            const std::string& certificate_request,
                                                            int64_t now_s) const {
  const auto holder = HolderOf(cert);
  if (!holder.ok() || holder->cluster != cluster_) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_RENEWABLE",
                 "a certificate that names no role of the cluster " +
                     Printable(cluster_, kMaxCertificateNameBytes) + " cannot be renewed here")
        .Hint("make a new one where it was made (docs/OPERATIONS.md, TLS)");
  }
  ASSIGN_OR_RETURN(const CertificateTerm term, TermOf(cert));
  const int64_t total_s = std::min(term.not_after_s - term.not_before_s,
                                   options_.certificate_days * kDayS + kBackdatedS);
  v1::RenewCertificateResponse response;
  ASSIGN_OR_RETURN(*response.mutable_certificate(),
                   IssueCertificate(options_.authority.signer, certificate_request, *holder,
                                    CertificateHosts(cert),
                                    TermOfIssue(revocations_.NextIssueS(*holder, now_s), total_s)));
  response.set_authorities(options_.authority.Trusted());
  return response;
}

}  // namespace strata
