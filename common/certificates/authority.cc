#include "common/certificates/authority.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/certificates/openssl_owned.h"
#include "common/digest.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

using openssl::Owned;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr long kVersion3 = 2;          // As X.509 counts.
constexpr size_t kSerialBytes = 16;    // RFC 5280 allows 20; 64 bits of them must be random.
constexpr size_t kMaxHostBytes = 253;  // A DNS name's.
constexpr size_t kMaxShownBytes = 128;

// What OpenSSL last said. For what cannot fail but for lack of memory or of random numbers.
absl::Status Failed(const char* what) {
  std::array<char, 256> text = {};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return Error(absl::StatusCode::kInternal, "TLS_FAILED", absl::StrCat(what, ": ", text.data()));
}

template <typename Write>
absl::StatusOr<std::string> PemOf(const Write& write) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  if (out == nullptr || write(out.get()) != 1) {
    return Failed("cannot write as PEM");
  }
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

Owned<BIO> Reader(std::string_view text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A passphrase is never asked for.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

absl::StatusOr<Owned<EVP_PKEY>> ReadKey(std::string_view pem) {
  const Owned<BIO> in = Reader(pem);
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(in.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return Error(kInvalid, "TLS_FILE_BAD", "there is no private key without a passphrase");
  }
  return key;
}

absl::StatusOr<Owned<X509>> ReadCertificate(std::string_view pem) {
  const Owned<BIO> in = Reader(pem);
  Owned<X509> cert(PEM_read_bio_X509(in.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (cert == nullptr) {
    return Error(kInvalid, "TLS_FILE_BAD", "there is no certificate");
  }
  return cert;
}

// Whose signature is by its own key.
absl::StatusOr<Owned<X509_REQ>> ReadRequest(std::string_view pem) {
  const Owned<BIO> in = Reader(pem);
  Owned<X509_REQ> request(PEM_read_bio_X509_REQ(in.get(), nullptr, NoPassphrase, nullptr));
  EVP_PKEY* key = request != nullptr ? X509_REQ_get0_pubkey(request.get()) : nullptr;
  const bool good = key != nullptr && X509_REQ_verify(request.get(), key) == 1;
  ERR_clear_error();
  if (!good) {
    return Error(kInvalid, "TLS_REQUEST_BAD",
                 "this is no request for a certificate, or it is not signed with its own key");
  }
  // As little as a handshake takes (OpenSSL's security level 2).
  constexpr int kLeastSecurityBits = 112;
  if (EVP_PKEY_get_security_bits(key) < kLeastSecurityBits) {
    return Error(kInvalid, "TLS_REQUEST_BAD", "the key of this request is too weak for TLS")
        .Limit(absl::StrCat("security_bits=", kLeastSecurityBits))
        .Hint("use a key on the curve P-256, or RSA of 2048 bits");
  }
  return request;
}

absl::StatusOr<Owned<EVP_PKEY>> NewKey() {
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (key == nullptr) {
    return Failed("cannot make a key");
  }
  return key;
}

absl::StatusOr<std::string> PemOfKey(EVP_PKEY* key) {
  return PemOf([&](BIO* out) {
    return PEM_write_bio_PKCS8PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

absl::Status CheckName(const char* what, std::string_view name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
  if (!name.empty() && name.size() <= kMaxCertificateNameBytes && printable) {
    return absl::OkStatus();
  }
  return Error(kInvalid, "BAD_NAME",
               absl::StrCat("'", Printable(name, kMaxShownBytes), "' cannot be ", what,
                            " in a certificate"))
      .Limit(absl::StrCat("bytes=", kMaxCertificateNameBytes))
      .Hint("take letters, digits and what else a keyboard without accents has");
}

// "IP:10.0.0.1" or "DNS:gpu-box", as OpenSSL reads it.
absl::StatusOr<std::string> AlternativeName(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  if (inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
      inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    return "IP:" + host;
  }
  const bool name = std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  });
  if (host.empty() || host.size() > kMaxHostBytes || !name || host.front() == '-' ||
      host.front() == '.') {
    return Error(kInvalid, "BAD_HOST",
                 absl::StrCat("'", Printable(host, kMaxShownBytes),
                              "' is neither an address nor a name of a machine"))
        .Limit(absl::StrCat("bytes=", kMaxHostBytes))
        .Hint("give addresses and names without a port, as others dial them");
  }
  return "DNS:" + host;
}

bool AddEntry(X509_NAME* name, const char* field, const std::string& value) {
  return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(value.data()),
                                    static_cast<int>(value.size()), -1, 0) == 1;
}

bool SetSerial(X509* cert) {
  std::array<unsigned char, kSerialBytes> bytes;
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) {
    return false;
  }
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // Positive, of full length.
  const Owned<BIGNUM> number(BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(cert)) != nullptr;
}

bool SetTerm(X509* cert, const CertificateTerm& term) {
  return ASN1_TIME_set(X509_getm_notBefore(cert), static_cast<time_t>(term.not_before_s)) !=
             nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(cert), static_cast<time_t>(term.not_after_s)) != nullptr;
}

bool Extend(X509* cert, X509* issuer, int extension, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> made(
      X509V3_EXT_conf_nid(nullptr, &context, extension, value.c_str()));
  return made != nullptr && X509_add_ext(cert, made.get(), -1) == 1;
}

std::optional<std::string> EntryOf(const X509_NAME* name, int field) {
  const int at = X509_NAME_get_index_by_NID(name, field, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(name, field, at) >= 0) {
    return std::nullopt;  // None, or several: whom it means is not certain.
  }
  const ASN1_STRING* value = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  unsigned char* text = nullptr;
  const int size = ASN1_STRING_to_UTF8(&text, value);
  if (size < 0) {
    ERR_clear_error();
    return std::nullopt;
  }
  std::string out(reinterpret_cast<char*>(text), static_cast<size_t>(size));
  OPENSSL_free(text);
  return out;
}

absl::StatusOr<std::string> DigestOfKey(EVP_PKEY* key) {
  unsigned char* data = nullptr;
  const int size = key == nullptr ? -1 : i2d_PUBKEY(key, &data);
  if (size < 0) {
    return Failed("cannot write a key");
  }
  const std::string digest =
      Sha256Hex({reinterpret_cast<const char*>(data), static_cast<size_t>(size)});
  OPENSSL_free(data);
  return digest;
}

absl::StatusOr<std::string> DigestOf(X509* cert) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  if (X509_digest(cert, EVP_sha256(), digest.data(), &size) != 1) {
    return Failed("cannot digest a certificate");
  }
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

// Since 1970. 0: it says no time.
int64_t SecondsOf(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

bool Serves(CertificateRole role) {
  return role == CertificateRole::kCoordinator || role == CertificateRole::kWorker;
}

}  // namespace

std::string_view CertificateRoleName(CertificateRole role) {
  switch (role) {
    case CertificateRole::kCoordinator:
      return "coordinator";
    case CertificateRole::kWorker:
      return "worker";
    case CertificateRole::kOperator:
      return "operator";
    case CertificateRole::kClient:
      return "client";
  }
  return "";
}

absl::StatusOr<std::string> MakePrivateKey() {
  ASSIGN_OR_RETURN(const Owned<EVP_PKEY> key, NewKey());
  return PemOfKey(key.get());
}

absl::StatusOr<CertifiedKey> MakeAuthority(const std::string& cluster,
                                           const CertificateTerm& term) {
  RETURN_IF_ERROR(CheckName("the name of a cluster", cluster));
  ASSIGN_OR_RETURN(const Owned<EVP_PKEY> key, NewKey());
  const Owned<X509> cert(X509_new());
  X509_NAME* name = X509_get_subject_name(cert.get());
  if (X509_set_version(cert.get(), kVersion3) != 1 || !SetSerial(cert.get()) ||
      !SetTerm(cert.get(), term) || !AddEntry(name, "O", cluster) ||
      !AddEntry(name, "CN", cluster + " authority") ||
      X509_set_issuer_name(cert.get(), name) != 1 || X509_set_pubkey(cert.get(), key.get()) != 1 ||
      !Extend(cert.get(), cert.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !Extend(cert.get(), cert.get(), NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !Extend(cert.get(), cert.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(cert.get(), key.get(), EVP_sha256()) == 0) {
    return Failed("cannot make the authority's certificate");
  }
  CertifiedKey made;
  ASSIGN_OR_RETURN(made.cert, PemOf([&](BIO* out) { return PEM_write_bio_X509(out, cert.get()); }));
  ASSIGN_OR_RETURN(made.key, PemOfKey(key.get()));
  return made;
}

absl::StatusOr<std::string> MakeCertificateRequest(std::string_view key) {
  ASSIGN_OR_RETURN(const Owned<EVP_PKEY> own, ReadKey(key));
  const Owned<X509_REQ> request(X509_REQ_new());
  if (X509_REQ_set_version(request.get(), 0) != 1 ||
      X509_REQ_set_pubkey(request.get(), own.get()) != 1 ||
      X509_REQ_sign(request.get(), own.get(), EVP_sha256()) == 0) {
    return Failed("cannot make a request for a certificate");
  }
  return PemOf([&](BIO* out) { return PEM_write_bio_X509_REQ(out, request.get()); });
}

absl::StatusOr<std::string> RequestKeyDigest(std::string_view request) {
  ASSIGN_OR_RETURN(const Owned<X509_REQ> asked, ReadRequest(request));
  return DigestOfKey(X509_REQ_get0_pubkey(asked.get()));
}

absl::StatusOr<std::string> CertificateKeyDigest(std::string_view cert) {
  ASSIGN_OR_RETURN(const Owned<X509> read, ReadCertificate(cert));
  return DigestOfKey(X509_get0_pubkey(read.get()));
}

absl::StatusOr<std::string> IssueCertificate(const CertifiedKey& authority,
                                             std::string_view request,
                                             const CertificateHolder& holder,
                                             const std::vector<std::string>& hosts,
                                             const CertificateTerm& term) {
  RETURN_IF_ERROR(CheckName("the name of a cluster", holder.cluster));
  RETURN_IF_ERROR(CheckName("a name", holder.name));
  if (hosts.size() > kMaxCertificateHosts) {
    return Error(kInvalid, "BAD_HOST",
                 absl::StrCat(hosts.size(), " hosts are more than a certificate takes"))
        .Limit(absl::StrCat("hosts=", kMaxCertificateHosts))
        .Hint("name those by which others dial this machine");
  }
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    ASSIGN_OR_RETURN(names.emplace_back(), AlternativeName(host));
  }
  ASSIGN_OR_RETURN(const Owned<X509> issuer, ReadCertificate(authority.cert));
  ASSIGN_OR_RETURN(const Owned<EVP_PKEY> issuer_key, ReadKey(authority.key));
  if (X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return Error(kInvalid, "TLS_KEY_MISMATCH",
                 "the authority's key is not the one of its certificate");
  }
  ASSIGN_OR_RETURN(const Owned<X509_REQ> asked, ReadRequest(request));
  EVP_PKEY* key = X509_REQ_get0_pubkey(asked.get());
  const Owned<X509> cert(X509_new());
  X509_NAME* name = X509_get_subject_name(cert.get());
  const bool good =
      X509_set_version(cert.get(), kVersion3) == 1 && SetSerial(cert.get()) &&
      SetTerm(cert.get(), term) && AddEntry(name, "O", holder.cluster) &&
      AddEntry(name, "OU", std::string(CertificateRoleName(holder.role))) &&
      AddEntry(name, "CN", holder.name) &&
      X509_set_issuer_name(cert.get(), X509_get_subject_name(issuer.get())) == 1 &&
      X509_set_pubkey(cert.get(), key) == 1 &&
      Extend(cert.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      Extend(cert.get(), issuer.get(), NID_key_usage, "critical,digitalSignature") &&
      Extend(cert.get(), issuer.get(), NID_ext_key_usage,
             Serves(holder.role) ? "serverAuth,clientAuth" : "clientAuth") &&
      Extend(cert.get(), issuer.get(), NID_subject_key_identifier, "hash") &&
      Extend(cert.get(), issuer.get(), NID_authority_key_identifier, "keyid:always") &&
      (names.empty() ||
       Extend(cert.get(), issuer.get(), NID_subject_alt_name, absl::StrJoin(names, ",")));
  if (!good || X509_sign(cert.get(), issuer_key.get(), EVP_sha256()) == 0) {
    return Failed("cannot make a certificate");
  }
  return PemOf([&](BIO* out) { return PEM_write_bio_X509(out, cert.get()); });
}

absl::StatusOr<CertificateHolder> HolderOf(std::string_view cert) {
  ASSIGN_OR_RETURN(const Owned<X509> read, ReadCertificate(cert));
  const X509_NAME* subject = X509_get_subject_name(read.get());
  const std::optional<std::string> cluster = EntryOf(subject, NID_organizationName);
  const std::optional<std::string> unit = EntryOf(subject, NID_organizationalUnitName);
  const std::optional<std::string> name = EntryOf(subject, NID_commonName);
  if (cluster.has_value() && unit.has_value() && name.has_value()) {
    for (const CertificateRole role : kCertificateRoles) {
      if (*unit == CertificateRoleName(role)) {
        return CertificateHolder{.role = role, .cluster = *cluster, .name = *name};
      }
    }
  }
  return Error(kInvalid, "TLS_NO_ROLE",
               absl::StrCat("the certificate of '", Printable(name.value_or(""), kMaxShownBytes),
                            "' names no role"))
      .Hint("make one that says it (docs/OPERATIONS.md, TLS)");
}

absl::StatusOr<std::string> ClusterOf(std::string_view authority) {
  ASSIGN_OR_RETURN(const Owned<X509> read, ReadCertificate(authority));
  const std::optional<std::string> cluster =
      EntryOf(X509_get_subject_name(read.get()), NID_organizationName);
  if (!cluster.has_value()) {
    return Error(kInvalid, "TLS_NO_ROLE", "the authority's certificate names no cluster")
        .Hint("use an authority that `strata cluster init` made");
  }
  return *cluster;
}

std::vector<std::string> CertificateHosts(std::string_view cert) {
  std::vector<std::string> hosts;
  const absl::StatusOr<Owned<X509>> read = ReadCertificate(cert);
  auto* names = read.ok() ? static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
                                read->get(), NID_subject_alt_name, nullptr, nullptr))
                          : nullptr;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_DNS) {
      hosts.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                         static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
    } else if (name->type == GEN_IPADD) {
      const int bytes = ASN1_STRING_length(name->d.iPAddress);
      std::array<char, INET6_ADDRSTRLEN> text = {};
      if ((bytes == 4 || bytes == 16) &&
          inet_ntop(bytes == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress),
                    text.data(), text.size()) != nullptr) {
        hosts.emplace_back(text.data());
      }
    }
  }
  GENERAL_NAMES_free(names);
  return hosts;
}

absl::StatusOr<CertificateTerm> TermOf(std::string_view cert) {
  ASSIGN_OR_RETURN(const Owned<X509> read, ReadCertificate(cert));
  return CertificateTerm{.not_before_s = SecondsOf(X509_get0_notBefore(read.get())),
                         .not_after_s = SecondsOf(X509_get0_notAfter(read.get()))};
}

bool IsIssuedBy(std::string_view cert, std::string_view authority) {
  const auto issued = ReadCertificate(cert);
  const auto issuer = ReadCertificate(authority);
  if (!issued.ok() || !issuer.ok()) {
    return false;
  }
  const bool by = X509_verify(issued->get(), X509_get0_pubkey(issuer->get())) == 1;
  ERR_clear_error();
  return by;
}

std::vector<std::string> CertificateFingerprints(std::string_view certs) {
  const Owned<BIO> in = Reader(certs);
  std::vector<std::string> found;
  while (Owned<X509> one{PEM_read_bio_X509(in.get(), nullptr, NoPassphrase, nullptr)}) {
    const auto digest = DigestOf(one.get());
    if (digest.ok()) {
      found.push_back(*digest);
    }
  }
  ERR_clear_error();
  return found;
}

absl::StatusOr<std::string> CertificateFingerprint(std::string_view cert) {
  ASSIGN_OR_RETURN(const Owned<X509> read, ReadCertificate(cert));
  return DigestOf(read.get());
}

}  // namespace strata
