#include "common/rpc/openssl_text.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "common/printable.h"
#include "common/status.h"

namespace strata::openssl {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr int kMaxNames = 8;

std::string NameText(const X509_NAME* name) {
  char text[256] = {};
  if (X509_NAME_get_text_by_NID(const_cast<X509_NAME*>(name), NID_commonName, text, sizeof(text)) <=
      0) {
    X509_NAME_oneline(name, text, sizeof(text));
  }
  return Printable(text, kMaxNameBytes);
}

int64_t Seconds(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

std::string NameOf(const GENERAL_NAME* name) {
  if (name->type == GEN_DNS) {
    const auto* text = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName));
    return "DNS:" + Printable({text, static_cast<size_t>(ASN1_STRING_length(name->d.dNSName))},
                              kMaxNameBytes);
  }
  if (name->type == GEN_IPADD) {
    char text[INET6_ADDRSTRLEN] = {};
    const int bytes = ASN1_STRING_length(name->d.iPAddress);
    if (bytes == 4 || bytes == 16) {
      inet_ntop(bytes == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress), text,
                sizeof(text));
      return std::string("IP:") + text;
    }
  }
  return "";
}

}  // namespace

std::vector<Owned<X509>> ReadCertificates(std::string_view pem) {
  std::vector<Owned<X509>> out;
  const Owned<BIO> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* cert = PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr)) {
    out.emplace_back(cert);
  }
  ERR_clear_error();
  return out;
}

std::string Subject(const X509* cert) { return NameText(X509_get_subject_name(cert)); }
std::string Issuer(const X509* cert) { return NameText(X509_get_issuer_name(cert)); }

std::string Names(X509* cert) {
  auto* names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(cert, NID_subject_alt_name, nullptr, nullptr));
  std::string out;
  int shown = 0;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
    const std::string name = NameOf(sk_GENERAL_NAME_value(names, i));
    if (!name.empty() && ++shown <= kMaxNames) {
      out += (out.empty() ? "" : ", ") + name;
    }
  }
  GENERAL_NAMES_free(names);
  return out.empty() ? "no name" : out + (shown > kMaxNames ? ", ..." : "");
}

CertificateTimes Times(const X509* cert) {
  return {.subject = Subject(cert),
          .not_before_s = Seconds(X509_get0_notBefore(cert)),
          .not_after_s = Seconds(X509_get0_notAfter(cert))};
}

std::string Date(int64_t time_s) {
  const auto time = static_cast<std::time_t>(time_s);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

absl::Status Verdict(int code, X509* cert, const std::string& whose,
                     const std::string& authorities) {
  constexpr auto kCode = absl::StatusCode::kInvalidArgument;
  const std::string named = whose + " (" + Subject(cert) + ")";
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return Error(kCode, "TLS_EXPIRED", named + " expired on " + Date(Times(cert).not_after_s))
          .Hint("make a new one (docs/OPERATIONS.md, TLS), and restart what uses it");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return Error(kCode, "TLS_NOT_YET_VALID",
                   named + " is valid only from " + Date(Times(cert).not_before_s) +
                       "; the clock here says " + Date(std::time(nullptr)))
          .Hint(
              "set the clocks of both machines, or make a new certificate (docs/OPERATIONS.md, "
              "TLS)");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
      return Error(kCode, "TLS_WRONG_CA",
                   whose + " is not of the CA in --tls-dir (" + Subject(cert) + " is of " +
                       Issuer(cert) + ", ca.pem is " + authorities + ")")
          .Hint(
              "one CA makes the certificates of all machines (docs/OPERATIONS.md, TLS), and each "
              "has its ca.pem; where the authority has changed, join or log in anew");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return Error(kCode, "TLS_WRONG_NAME",
                   whose + " does not have this address (it has " + Names(cert) + ")")
          .Hint(
              "use an address that it has, or make one with subjectAltName=IP:... or DNS:... of "
              "this address (docs/OPERATIONS.md, TLS)");
    case X509_V_ERR_INVALID_PURPOSE:
      return Error(kCode, "TLS_WRONG_PURPOSE", named + " is not made for this end of a connection")
          .Hint("leave extendedKeyUsage out, or give it serverAuth and clientAuth");
    default:
      return Error(kCode, "TLS_REFUSED",
                   named + " cannot be used: " + X509_verify_cert_error_string(code))
          .Hint("make a new one (docs/OPERATIONS.md, TLS)");
  }
}

std::string Authorities(std::string_view ca) {
  std::string out;
  int shown = 0;
  for (const Owned<X509>& cert : ReadCertificates(ca)) {
    if (++shown <= kMaxNames) {
      out += (out.empty() ? "" : ", ") + Subject(cert.get());
    }
  }
  return out.empty() ? "empty" : out + (shown > kMaxNames ? ", ..." : "");
}

}  // namespace strata::openssl
