#include "coordinator/service/calls/joining_desk.h"

#include <openssl/rand.h>

#include <algorithm>
#include <ctime>

#include "absl/strings/str_join.h"
#include "common/certificates/authority.h"
#include "common/certificates/authority_folder.h"
#include "common/certificates/join_token.h"
#include "common/certificates/renewal.h"
#include "common/check.h"
#include "common/printable.h"
#include "common/rpc/address.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr char kRevokedSetting[] = "revoked_certificates";
// As many nodes as a cluster may have, and as many authorities as a change needs; more are left
// out.
constexpr size_t kMaxFollowers = 10'000;
constexpr size_t kMaxTrusted = 16;
constexpr size_t kFingerprintDigits = 64;

int64_t NowS() { return static_cast<int64_t>(std::time(nullptr)); }

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

std::optional<CertificateRole> RoleNamed(const std::string& name) {
  for (const CertificateRole role : kCertificateRoles) {
    if (name == CertificateRoleName(role)) {
      return role;
    }
  }
  return std::nullopt;
}

void AddRevoked(const Revocations& revocations, v1::Trust* trust) {
  for (const Revocation& one : revocations.all()) {
    v1::RevokedHolder* revoked = trust->add_revoked();
    revoked->set_role(std::string(CertificateRoleName(one.role)));
    revoked->set_name(one.name);
    revoked->set_issued_until(one.issued_until_s);
  }
}

absl::Status CheckRevocable(std::optional<CertificateRole> role, const std::string& name) {
  if (!role.has_value() || *role == CertificateRole::kCoordinator) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ROLE",
                 "certificates of workers, operators and clients can be revoked")
        .Hint("one of a coordinator ends with its authority: `strata cluster authority rotate`");
  }
  if (name.empty() || name.size() > kMaxCertificateNameBytes || !IsPrintable(name)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_NAME",
                 "'" + Printable(name, kMaxCertificateNameBytes) + "' is nobody's name")
        .Limit("bytes=" + std::to_string(kMaxCertificateNameBytes))
        .Hint("give the name that the certificate has (CN)");
  }
  return absl::OkStatus();
}

// What keeps a member from following, the worst first.
enum class Behind { kGone, kNotRenewable, kWaits };

Behind WhyBehind(const v1::AuthorityFollower& one) {
  return !one.alive() ? Behind::kGone : !one.renewable() ? Behind::kNotRenewable : Behind::kWaits;
}

std::string RemedyFor(Behind why, const std::string& node) {
  switch (why) {
    case Behind::kGone:
      return "start its worker, or `strata node remove " + node + "`";
    case Behind::kNotRenewable:
      return "have it join anew (`strata node token`): its certificate cannot be renewed";
    case Behind::kWaits:
      return "wait a few seconds; its log says what keeps it";
  }
  return "";
}

absl::Status CheckAllFollowed(const v1::AuthorityState& state) {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> named;
  size_t behind = 0;
  Behind worst = Behind::kWaits;
  std::string whose;
  for (const v1::AuthorityFollower& one : state.followers()) {
    if (one.followed()) {
      continue;
    }
    if (++behind <= kMostNamed) {
      named.push_back(one.name().empty() ? "the coordinator" : "node " + one.name());
    }
    if (WhyBehind(one) < worst) {
      worst = WhyBehind(one);
      whose = one.name();
    }
  }
  if (behind == 0) {
    return absl::OkStatus();
  }
  if (behind > named.size()) {
    named.push_back(std::to_string(behind - named.size()) + " more");
  }
  return Error(absl::StatusCode::kFailedPrecondition, "AUTHORITY_NOT_FOLLOWED",
               absl::StrJoin(named, ", ") + (behind == 1 ? " has" : " have") +
                   " not yet the certificates of the step before")
      .Hint(RemedyFor(worst, whose));
}

}  // namespace

JoiningDesk::JoiningDesk(JoiningDeskOptions options)
    : authority_dir_(std::move(options.authority_dir)),
      live_(std::move(options.live)),
      store_(options.store),
      joining_(std::move(options.joining)) {}

absl::Status JoiningDesk::Restore() {
  ASSIGN_OR_RETURN(const auto stored, store_->GetSetting(kRevokedSetting));
  v1::Trust trust;
  if (stored.has_value() && !trust.ParseFromString(*stored)) {
    return Error(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                 "the list of revoked certificates in the state store cannot be read");
  }
  MutexLock lock(&mutex_);
  for (const v1::RevokedHolder& one : trust.revoked()) {
    if (const auto role = RoleNamed(one.role())) {
      revocations_.Add({*role, one.name(), one.issued_until()});
    }
  }
  if (live_ != nullptr) live_->SetRevocations(revocations_);
  if (joining_.has_value()) joining_->SetRevocations(revocations_);
  return absl::OkStatus();
}

void JoiningDesk::SetAddresses(const std::string& address, const std::string& join_address) {
  MutexLock lock(&mutex_);
  address_ = address;
  join_address_ = join_address;
}

void JoiningDesk::SetEndCalls(std::function<size_t()> end_calls) {
  MutexLock lock(&mutex_);
  end_calls_ = std::move(end_calls);
}

absl::StatusOr<std::string> JoiningDesk::HostFor(const std::string& asked) const {
  const std::string cert = live_ == nullptr ? "" : live_->files()->cert;
  if (!asked.empty()) {
    RETURN_IF_ERROR(CheckCertificateName(cert, asked, "the coordinator's certificate"));
    return asked;
  }
  const std::string bound = ParseHostPort(address_).value().host;
  if (!IsAnyAddress(bound)) {
    RETURN_IF_ERROR(CheckCertificateName(cert, bound, "the coordinator's certificate"));
    return bound;
  }
  std::vector<std::string> hosts = CertificateHosts(cert);
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

absl::StatusOr<v1::RenewCertificateResponse> JoiningDesk::Renew(
    const std::string& cert, const v1::RenewCertificateRequest& request) {
  MutexLock lock(&mutex_);
  if (!joining_.has_value()) {
    return NoAuthority();
  }
  RETURN_IF_ERROR(revocations_.Check(cert, "the caller's certificate"));
  return joining_->Renew(cert, request.certificate_request(), NowS());
}

v1::Trust JoiningDesk::Trust(bool with_revoked) {
  MutexLock lock(&mutex_);
  v1::Trust trust;
  if (joining_.has_value()) {
    trust.set_authorities(joining_->authority().Trusted());
    trust.set_signer_sha256(joining_->signer_sha256());
  }
  if (with_revoked) {
    AddRevoked(revocations_, &trust);
  }
  return trust;
}

void JoiningDesk::NoteFollower(const v1::GetTrustRequest& request, const std::string& cert) {
  MutexLock lock(&mutex_);
  if (followers_.size() >= kMaxFollowers) {
    followers_.clear();  // They say it again within seconds.
  }
  Follower follower = {.cert = cert, .trusted = {}};
  for (const std::string& one : request.trusted_sha256()) {
    if (one.size() == kFingerprintDigits && follower.trusted.size() < kMaxTrusted) {
      follower.trusted.push_back(one);
    }
  }
  followers_[request.node()] = std::move(follower);
}

bool JoiningDesk::HasRoles() const {
  return live_ != nullptr && live_->files()->holder.has_value();
}

bool JoiningDesk::IsRevocable(const std::string& node) {
  MutexLock lock(&mutex_);
  const auto found = followers_.find(node);
  const auto holder =
      found == followers_.end() ? absl::NotFoundError("") : HolderOf(found->second.cert);
  return holder.ok() && holder->role == CertificateRole::kWorker && holder->name == node;
}

absl::StatusOr<size_t> JoiningDesk::Revoke(const std::string& role_name, const std::string& name) {
  const std::optional<CertificateRole> role = RoleNamed(role_name);
  RETURN_IF_ERROR(CheckRevocable(role, name));
  if (!HasRoles()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_ROLES",
                 "certificates of this cluster name no roles, by which they could be revoked")
        .Hint("make them by `strata cluster init` (docs/OPERATIONS.md, TLS)");
  }
  std::function<size_t()> end_calls;
  {
    MutexLock lock(&mutex_);
    Revocations revocations = revocations_;
    revocations.Add({*role, name, NowS()});
    v1::Trust trust;
    AddRevoked(revocations, &trust);
    RETURN_IF_ERROR(store_->SetSetting(kRevokedSetting, trust.SerializeAsString()));
    revocations_ = std::move(revocations);
    live_->SetRevocations(revocations_);
    if (joining_.has_value()) joining_->SetRevocations(revocations_);
    end_calls = end_calls_;
  }
  return end_calls ? end_calls() : 0;
}

bool JoiningDesk::Followed(const std::string& cert, const std::vector<std::string>& trusted) const {
  const AuthoritySet& set = joining_->authority();
  const std::vector<std::string> wanted = CertificateFingerprints(set.Trusted());
  return IsIssuedBy(cert, set.signer.cert) &&
         std::is_permutation(trusted.begin(), trusted.end(), wanted.begin(), wanted.end());
}

v1::AuthorityState JoiningDesk::State(const std::map<std::string, bool>& nodes) const {
  const AuthoritySet& set = joining_->authority();
  v1::AuthorityState state;
  state.set_phase(!set.next.empty()       ? v1::AUTHORITY_PHASE_SPREADING
                  : !set.previous.empty() ? v1::AUTHORITY_PHASE_RENEWING
                                          : v1::AUTHORITY_PHASE_SETTLED);
  state.set_signer_sha256(joining_->signer_sha256());
  const std::string& other = set.next.empty() ? set.previous : set.next;
  state.set_other_sha256(other.empty() ? "" : CertificateFingerprint(other).value_or(""));
  state.set_expires_at(TermOf(set.signer.cert).value_or(CertificateTerm()).not_after_s);
  const auto files = live_->files();
  v1::AuthorityFollower* own = state.add_followers();
  own->set_alive(true);
  own->set_followed(Followed(files->cert, CertificateFingerprints(files->ca)));
  own->set_renewable(files->holder.has_value());
  for (const auto& [name, alive] : nodes) {
    v1::AuthorityFollower* node = state.add_followers();
    node->set_name(name);
    node->set_alive(alive);
    const auto found = followers_.find(name);
    if (found != followers_.end()) {
      node->set_followed(Followed(found->second.cert, found->second.trusted));
      node->set_renewable(HolderOf(found->second.cert).ok());
    }
  }
  return state;
}

absl::Status JoiningDesk::Step(v1::AuthorityStep step) {
  if (step == v1::AUTHORITY_STEP_ROTATE) {
    ASSIGN_OR_RETURN(const CertificateTerm term, TermOf(joining_->authority().signer.cert));
    ASSIGN_OR_RETURN(const CertifiedKey next,
                     MakeAuthority(joining_->cluster(),
                                   TermOfIssue(NowS(), term.not_after_s - term.not_before_s)));
    RETURN_IF_ERROR(AddNextAuthority(authority_dir_, next));
  } else if (step == v1::AUTHORITY_STEP_SWITCH) {
    RETURN_IF_ERROR(SwitchAuthority(authority_dir_));
  } else {
    RETURN_IF_ERROR(DropPreviousAuthority(authority_dir_));
  }
  ASSIGN_OR_RETURN(AuthoritySet set, ReadAuthoritySet(authority_dir_));
  return joining_->SetAuthority(std::move(set));
}

absl::StatusOr<v1::AuthorityState> JoiningDesk::ChangeAuthority(
    v1::AuthorityStep step, const std::map<std::string, bool>& nodes) {
  MutexLock lock(&mutex_);
  if (!joining_.has_value()) {
    return NoAuthority();
  }
  if (step == v1::AUTHORITY_STEP_UNSPECIFIED) {
    return State(nodes);
  }
  if (absl::Status followed = CheckAllFollowed(State(nodes)); !followed.ok()) {
    return followed;
  }
  RETURN_IF_ERROR(Step(step));
  return State(nodes);
}

}  // namespace strata
