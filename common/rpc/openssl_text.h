// OpenSSL's objects as text.
#ifndef STRATA_COMMON_RPC_OPENSSL_TEXT_H_
#define STRATA_COMMON_RPC_OPENSSL_TEXT_H_

#include <openssl/x509.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/certificates/openssl_owned.h"
#include "common/rpc/tls_files.h"

namespace strata::openssl {

// All certificates of a PEM text, up to the first block that is none.
std::vector<Owned<X509>> ReadCertificates(std::string_view pem);

// The common name, or the whole subject where there is none; printable and short.
std::string Subject(const X509* cert);
std::string Issuer(const X509* cert);
// "IP:10.0.0.1, DNS:gpu-box"; "no name" where there is none.
std::string Names(X509* cert);
CertificateTimes Times(const X509* cert);
// "2026-11-28 17:05 UTC".
std::string Date(int64_t time_s);

// What a verification said of `cert`, which failed with X509_V_ERR_... `code`: reason, and a
// sentence of `whose` certificate; `authorities`: the subjects of the ca.pem at hand.
absl::Status Verdict(int code, X509* cert, const std::string& whose,
                     const std::string& authorities);

// The subjects of a ca.pem, for a sentence.
std::string Authorities(std::string_view ca);

}  // namespace strata::openssl

#endif  // STRATA_COMMON_RPC_OPENSSL_TEXT_H_
