// Certificates for tests, valid for a day around now.
#ifndef STRATA_TESTS_COMMON_CERTIFICATES_MADE_H_
#define STRATA_TESTS_COMMON_CERTIFICATES_MADE_H_

#include <ctime>
#include <string>
#include <vector>

#include "common/certificates/authority.h"

namespace strata::testing {

inline const CertificateTerm kTerm = {static_cast<int64_t>(std::time(nullptr)) - 3600,
                                      static_cast<int64_t>(std::time(nullptr)) + 24 * 3600};

inline CertifiedKey MadeAuthority(const std::string& cluster) {
  return MakeAuthority(cluster, kTerm).value();
}

inline CertifiedKey MadeCertificate(const CertifiedKey& authority, const CertificateHolder& holder,
                                    const std::vector<std::string>& hosts = {}) {
  CertifiedKey made;
  made.key = MakePrivateKey().value();
  made.cert =
      IssueCertificate(authority, MakeCertificateRequest(made.key).value(), holder, hosts, kTerm)
          .value();
  return made;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COMMON_CERTIFICATES_MADE_H_
