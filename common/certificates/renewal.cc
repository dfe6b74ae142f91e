#include "common/certificates/renewal.h"

namespace strata {
namespace {

int64_t Total(const CertificateTerm& term) { return term.not_after_s - term.not_before_s; }
int64_t Backdated(int64_t total_s) { return total_s >= 2 * kBackdatedS ? kBackdatedS : 0; }

}  // namespace

CertificateTerm TermOfIssue(int64_t issued_s, int64_t total_s) {
  const int64_t begins_s = issued_s - Backdated(total_s);
  return {.not_before_s = begins_s, .not_after_s = begins_s + total_s};
}

int64_t IssuedAtS(const CertificateTerm& term) {
  return term.not_before_s + Backdated(Total(term));
}

bool RenewalIsDue(const CertificateTerm& term, int64_t renew_before_s, int64_t now_s) {
  const int64_t left_s = term.not_after_s - now_s;
  return renew_before_s == 0 ? 3 * left_s < Total(term) : left_s < renew_before_s;
}

}  // namespace strata
