#include "common/certificates/revocations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/certificates/renewal.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

const char* HintFor(CertificateRole role) {
  switch (role) {
    case CertificateRole::kWorker:
      return "if it is to belong to the cluster again, have it join anew (`strata node token`)";
    case CertificateRole::kOperator:
      return "if they are to administrate again, make a token (`strata cluster token operator`)";
    default:
      return "if they are to be let in again, make a token (`strata cluster token client`)";
  }
}

}  // namespace

void Revocations::Add(const Revocation& revocation) {
  std::erase_if(all_, [&](const Revocation& one) {
    return one.role == revocation.role && one.name == revocation.name;
  });
  if (all_.size() >= kMaxRevocations) {
    all_.erase(all_.begin());
  }
  all_.push_back(revocation);
}

const Revocation* Revocations::Find(CertificateRole role, const std::string& name) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Revocation& one) {
    return one.role == role && one.name == name;
  });
  return found == all_.end() ? nullptr : &*found;
}

int64_t Revocations::NextIssueS(const CertificateHolder& holder, int64_t now_s) const {
  const Revocation* found = Find(holder.role, holder.name);
  return found == nullptr ? now_s : std::max(now_s, found->issued_until_s + 1);
}

absl::Status Revocations::Check(std::string_view cert, const std::string& whose) const {
  if (all_.empty()) {
    return absl::OkStatus();
  }
  const auto holder = HolderOf(cert);
  const Revocation* found = holder.ok() ? Find(holder->role, holder->name) : nullptr;
  if (found == nullptr) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const CertificateTerm term, TermOf(cert));
  if (IssuedAtS(term) > found->issued_until_s) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kPermissionDenied, "TLS_REVOKED",
               absl::StrCat(whose, " (", std::string(CertificateRoleName(holder->role)), " ",
                            Printable(holder->name, kMaxCertificateNameBytes), ") was revoked"))
      .Hint(HintFor(holder->role));
}

}  // namespace strata
