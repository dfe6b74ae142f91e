// When a certificate is to be renewed, for how long the next one is, and when one was issued. Pure.
#ifndef STRATA_COMMON_CERTIFICATES_RENEWAL_H_
#define STRATA_COMMON_CERTIFICATES_RENEWAL_H_

#include <cstdint>

#include "common/certificates/authority.h"

namespace strata {

// A certificate begins so long before it is issued, since clocks of other machines may be behind;
// one that is valid for less than twice that begins when it is issued.
inline constexpr int64_t kBackdatedS = 3600;

// Of a certificate that is valid for `total_s` in all, issued at `issued_s`.
CertificateTerm TermOfIssue(int64_t issued_s, int64_t total_s);
// When one of this term was issued, if by TermOfIssue.
int64_t IssuedAtS(const CertificateTerm& term);

// What a `renew_before_s` of 0 means, for people.
inline constexpr char kRenewedByDefault[] = "a third of its time";

// Whether less than `renew_before_s` is left of it; 0: less than a third of its time.
bool RenewalIsDue(const CertificateTerm& term, int64_t renew_before_s, int64_t now_s);

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_RENEWAL_H_
