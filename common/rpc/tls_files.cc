#include "common/rpc/tls_files.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "common/rpc/openssl_text.h"
#include "common/status.h"

namespace strata {
namespace {

using openssl::Owned;

constexpr char kFolder[] = "--tls-dir is a folder with ca.pem, cert.pem and key.pem";
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int64_t kDay = 24 * 3600;
constexpr int64_t kSoon = 30 * kDay;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  struct stat info {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const int error = errno;
  if (file == nullptr) {
    const bool missing = error == ENOENT || error == ENOTDIR;
    return Error(missing ? absl::StatusCode::kNotFound : kInvalid,
                 missing ? "TLS_FILE_MISSING" : "TLS_FILE_UNREADABLE",
                 "cannot read " + path + ": " + std::strerror(error))
        .Hint(missing ? kFolder : "let the user that this runs as read it");
  }
  std::string text(kMaxFileBytes + 1, '\0');
  const bool folder = fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode);
  text.resize(folder ? 0 : std::fread(text.data(), 1, text.size(), file));
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (folder || failed) {
    return Error(kInvalid, "TLS_FILE_UNREADABLE",
                 "cannot read " + path + (folder ? ": it is a folder" : ""))
        .Hint(kFolder);
  }
  if (text.size() > kMaxFileBytes) {
    return Error(kInvalid, "TLS_FILE_BAD", path + " is larger than a PEM file may be")
        .Limit("bytes=" + std::to_string(kMaxFileBytes))
        .Hint(kFolder);
  }
  if (text.find("-----BEGIN") == std::string::npos) {
    return Error(kInvalid, "TLS_FILE_BAD", path + " is no PEM file").Hint(kFolder);
  }
  return text;
}

// There is nobody to ask for a passphrase.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& path, const std::string& pem) {
  const Owned<BIO> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  bool asked = false;
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(in.get(), nullptr, NoPassphrase, &asked));
  ERR_clear_error();
  if (key == nullptr) {
    return Error(kInvalid, "TLS_FILE_BAD",
                 path + (asked ? " is encrypted with a passphrase" : " has no private key"))
        .Hint(asked ? "store the key without one (openssl pkey), readable by its user alone"
                    : kFolder);
  }
  return key;
}

// Valid at `now_s`, each by itself.
absl::Status CheckTimes(X509* cert, const std::string& path, int64_t now_s) {
  const CertificateTimes times = openssl::Times(cert);
  if (now_s > times.not_after_s) {
    return openssl::Verdict(X509_V_ERR_CERT_HAS_EXPIRED, cert, "the certificate in " + path, "");
  }
  if (now_s < times.not_before_s) {
    return openssl::Verdict(X509_V_ERR_CERT_NOT_YET_VALID, cert, "the certificate in " + path, "");
  }
  return absl::OkStatus();
}

enum class Purpose { kClient, kAny };

absl::Status VerifyChain(const std::string& ca, const std::vector<Owned<X509>>& sent,
                         Purpose purpose, const std::string& whose) {
  const Owned<X509_STORE> store(X509_STORE_new());
  for (const Owned<X509>& authority : openssl::ReadCertificates(ca)) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  const Owned<STACK_OF(X509)> between(sk_X509_new_null());
  for (size_t i = 1; i < sent.size(); ++i) {
    sk_X509_push(between.get(), sent[i].get());
  }
  const Owned<X509_STORE_CTX> context(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(context.get(), store.get(), sent.front().get(), between.get()) != 1) {
    return Error(absl::StatusCode::kInternal, "TLS_REFUSED", whose + " cannot be verified");
  }
  X509_VERIFY_PARAM* param = X509_STORE_CTX_get0_param(context.get());
  if (purpose == Purpose::kClient) {
    X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_CLIENT);
    // As weak a key as a handshake would take, and no weaker.
    const Owned<SSL_CTX> tls(SSL_CTX_new(TLS_method()));
    X509_VERIFY_PARAM_set_auth_level(param, SSL_CTX_get_security_level(tls.get()));
  }
  const bool good = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (good) {
    return absl::OkStatus();
  }
  X509* blamed = X509_STORE_CTX_get_current_cert(context.get());
  return openssl::Verdict(X509_STORE_CTX_get_error(context.get()),
                          blamed != nullptr ? blamed : sent.front().get(), whose,
                          openssl::Authorities(ca));
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& dir, int64_t now_s) {
  TlsFiles files;
  files.dir = dir;
  ASSIGN_OR_RETURN(files.ca, ReadFile(dir + "/ca.pem"));
  ASSIGN_OR_RETURN(files.cert, ReadFile(dir + "/cert.pem"));
  ASSIGN_OR_RETURN(files.key, ReadFile(dir + "/key.pem"));
  const std::vector<Owned<X509>> authorities = openssl::ReadCertificates(files.ca);
  const std::vector<Owned<X509>> certs = openssl::ReadCertificates(files.cert);
  for (const auto& [list, name] : {std::pair(&authorities, "/ca.pem"), {&certs, "/cert.pem"}}) {
    if (list->empty()) {
      return Error(kInvalid, "TLS_FILE_BAD", dir + name + " has no certificate").Hint(kFolder);
    }
  }
  ASSIGN_OR_RETURN(const Owned<EVP_PKEY> key, ReadKey(dir + "/key.pem", files.key));
  if (X509_check_private_key(certs.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return Error(kInvalid, "TLS_KEY_MISMATCH",
                 dir + "/key.pem is not the key of the certificate in " + dir + "/cert.pem (" +
                     openssl::Subject(certs.front().get()) + ")")
        .Hint(
            "put the key there that was made with this certificate, or make both anew "
            "(docs/OPERATIONS.md, "
            "TLS)");
  }
  RETURN_IF_ERROR(CheckTimes(certs.front().get(), dir + "/cert.pem", now_s));
  if (auto holder = HolderOf(files.cert); holder.ok()) {
    files.holder = *std::move(holder);
  }
  ASSIGN_OR_RETURN(files.term, TermOf(files.cert));
  // Old authorities may lie beside new ones: only if all have ended is something wrong.
  absl::Status authority_status;
  files.ends_first = openssl::Times(certs.front().get());
  files.ends_first_file = "cert.pem";
  const CertificateTimes* last = nullptr;
  std::vector<CertificateTimes> times;
  for (const Owned<X509>& authority : authorities) {
    authority_status = CheckTimes(authority.get(), dir + "/ca.pem", now_s);
    if (authority_status.ok()) {
      times.push_back(openssl::Times(authority.get()));
    }
  }
  if (times.empty()) {
    return authority_status;
  }
  for (const CertificateTimes& one : times) {
    if (last == nullptr || one.not_after_s > last->not_after_s) {
      last = &one;
    }
  }
  if (last->not_after_s < files.ends_first.not_after_s) {
    files.ends_first = *last;
    files.ends_first_file = "ca.pem";
  }
  files.own_chain =
      VerifyChain(files.ca, certs, Purpose::kAny, "the certificate in " + dir + "/cert.pem");
  return files;
}

absl::Status CheckPeerCertificate(const std::string& ca, std::string_view cert,
                                  std::string_view chain, const std::string& whose) {
  std::vector<Owned<X509>> sent = openssl::ReadCertificates(cert);
  if (sent.empty()) {
    return Error(absl::StatusCode::kUnauthenticated, "TLS_NO_CERTIFICATE",
                 whose + " is missing or cannot be read")
        .Hint("give --tls-dir there too");
  }
  sent.resize(1);
  for (Owned<X509>& one : openssl::ReadCertificates(chain)) {
    sent.push_back(std::move(one));
  }
  return VerifyChain(ca, sent, Purpose::kClient, whose);
}

absl::StatusOr<CertificateTimes> TimesOf(std::string_view pem) {
  const std::vector<Owned<X509>> certs = openssl::ReadCertificates(pem);
  if (certs.empty()) {
    return Error(kInvalid, "TLS_FILE_BAD", "there is no certificate");
  }
  return openssl::Times(certs.front().get());
}

absl::Status CheckCertificateName(std::string_view pem, const std::string& host,
                                  const std::string& whose) {
  const std::vector<Owned<X509>> certs = openssl::ReadCertificates(pem);
  if (certs.empty()) {
    return Error(kInvalid, "TLS_FILE_BAD", "there is no certificate");
  }
  X509* cert = certs.front().get();
  unsigned char address[sizeof(in6_addr)];
  const bool is_address = inet_pton(AF_INET, host.c_str(), address) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), address) == 1;
  const int found = is_address ? X509_check_ip_asc(cert, host.c_str(), 0)
                               : X509_check_host(cert, host.data(), host.size(), 0, nullptr);
  return found == 1 ? absl::OkStatus()
                    : openssl::Verdict(X509_V_ERR_HOSTNAME_MISMATCH, cert, whose, "");
}

std::string EndsSoon(const CertificateTimes& times, int64_t now_s) {
  const int64_t left = times.not_after_s - now_s;
  if (times.not_after_s == 0 || left >= kSoon ||
      left > (times.not_after_s - times.not_before_s) / 3) {
    return "";
  }
  return (left <= 0 ? "expired on " : "expires on ") + openssl::Date(times.not_after_s);
}

}  // namespace strata
