#include "coordinator/http/http_tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "common/digest.h"
#include "common/rpc/openssl_text.h"
#include "common/status.h"

namespace strata {
namespace {

using openssl::Owned;

constexpr size_t kMaxPemBytes = size_t{1} << 20;
constexpr auto kBad = absl::StatusCode::kInvalidArgument;

// OpenSSL's newest reason, and none is left.
std::string LastReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? "OpenSSL refuses it" : reason;
  ERR_clear_error();
  return text;
}

int RefusePassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

int SelectHttp(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_bytes,
               const unsigned char* offered, unsigned int offered_bytes, void* /*unused*/) {
  static constexpr std::string_view kHttp = "http/1.1";
  for (unsigned int i = 0; i < offered_bytes; i += 1u + offered[i]) {
    const unsigned int bytes = offered[i];
    if (i + 1 + bytes <= offered_bytes &&
        std::string_view(reinterpret_cast<const char*>(offered) + i + 1, bytes) == kHttp) {
      *out = offered + i + 1;
      *out_bytes = static_cast<unsigned char>(bytes);
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

Owned<SSL_CTX> NewContext() {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  // Sessions are in the clients' tickets alone.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 1);
  SSL_CTX_set_alpn_select_cb(context.get(), &SelectHttp, nullptr);
  return context;
}

}  // namespace

absl::StatusOr<std::shared_ptr<HttpTls>> HttpTls::Open(const std::string& dir,
                                                       const std::string& flag) {
  return Open([dir] { return dir; }, flag);
}

absl::StatusOr<std::shared_ptr<HttpTls>> HttpTls::Open(std::function<std::string()> dir,
                                                       const std::string& flag) {
  std::shared_ptr<HttpTls> tls(new HttpTls(std::move(dir), flag));
  ASSIGN_OR_RETURN(Made made, tls->Read(&tls->taken_));
  MutexLock lock(&tls->mutex_);
  tls->made_ = std::move(made);
  return tls;
}

HttpTls::~HttpTls() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    ended_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

Owned<SSL_CTX> HttpTls::context() const {
  MutexLock lock(&mutex_);
  SSL_CTX_up_ref(made_.context.get());
  return Owned<SSL_CTX>(made_.context.get());
}

absl::Status HttpTls::problem() const {
  MutexLock lock(&mutex_);
  return problem_;
}

int64_t HttpTls::not_after_s() const {
  MutexLock lock(&mutex_);
  return made_.not_after_s;
}

int64_t HttpTls::not_before_s() const {
  MutexLock lock(&mutex_);
  return made_.not_before_s;
}

absl::StatusOr<std::string> HttpTls::ReadFile(const std::string& path) const {
  const std::string folder = flag_ + " is a folder with cert.pem and key.pem";
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    return Error(missing ? absl::StatusCode::kNotFound : kBad,
                 missing ? "TLS_FILE_MISSING" : "TLS_FILE_UNREADABLE",
                 "cannot read " + path + ": " + std::strerror(error))
        .Hint(missing ? folder : "let the user that this runs as read it");
  }
  std::string text(kMaxPemBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) {
    return Error(kBad, "TLS_FILE_UNREADABLE", "cannot read " + path).Hint(folder);
  }
  if (text.size() > kMaxPemBytes) {
    return Error(kBad, "TLS_FILE_BAD", path + " is larger than a PEM file may be")
        .Limit("bytes=" + std::to_string(kMaxPemBytes))
        .Hint(folder);
  }
  return text;
}

absl::StatusOr<HttpTls::Made> HttpTls::Read(std::string* seen) const {
  const std::string key_path = dir_() + "/key.pem";
  const absl::StatusOr<std::string> cert_pem = ReadFile(cert_path());
  const absl::StatusOr<std::string> key_pem = ReadFile(key_path);
  *seen = Sha256Hex((cert_pem.ok() ? *cert_pem : Describe(cert_pem.status())) + '\0' +
                    (key_pem.ok() ? *key_pem : Describe(key_pem.status())));
  RETURN_IF_ERROR(cert_pem.status());
  RETURN_IF_ERROR(key_pem.status());
  const std::string folder = flag_ + " is a folder with cert.pem and key.pem";

  Made made;
  made.context = NewContext();
  const Owned<BIO> certs(BIO_new_mem_buf(cert_pem->data(), static_cast<int>(cert_pem->size())));
  const Owned<X509> own(PEM_read_bio_X509(certs.get(), nullptr, nullptr, nullptr));
  if (own == nullptr) {
    ERR_clear_error();
    return Error(kBad, "TLS_FILE_BAD", cert_path() + " has no certificate").Hint(folder);
  }
  const Owned<BIO> key_file(BIO_new_mem_buf(key_pem->data(), static_cast<int>(key_pem->size())));
  bool asked = false;
  const Owned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(key_file.get(), nullptr, &RefusePassphrase, &asked));
  if (key == nullptr) {
    ERR_clear_error();
    return Error(kBad, "TLS_FILE_BAD",
                 key_path + (asked ? " is encrypted with a passphrase" : " has no private key"))
        .Hint(asked ? "store the key without one (openssl pkey), readable by its user alone"
                    : folder);
  }
  if (X509_check_private_key(own.get(), key.get()) != 1) {
    ERR_clear_error();
    return Error(kBad, "TLS_KEY_MISMATCH",
                 key_path + " is not the key of the certificate in " + cert_path())
        .Hint("put both there that were made together");
  }
  const CertificateTimes times = openssl::Times(own.get());
  made.not_before_s = times.not_before_s;
  made.not_after_s = times.not_after_s;
  const auto now_s = static_cast<int64_t>(std::time(nullptr));
  if (now_s > made.not_after_s) {
    return Error(kBad, "TLS_EXPIRED",
                 "the certificate in " + cert_path() + " expired on " +
                     openssl::Date(made.not_after_s))
        .Hint("put a new one there");
  }
  if (now_s < made.not_before_s) {
    return Error(kBad, "TLS_NOT_YET_VALID",
                 "the certificate in " + cert_path() + " is valid only from " +
                     openssl::Date(made.not_before_s) + "; the clock here says " +
                     openssl::Date(now_s))
        .Hint("set the clock, or put another one there");
  }
  if (SSL_CTX_use_certificate(made.context.get(), own.get()) != 1 ||
      SSL_CTX_use_PrivateKey(made.context.get(), key.get()) != 1) {
    return Error(kBad, "TLS_REFUSED",
                 "the certificate in " + cert_path() + " cannot be used: " + LastReason())
        .Hint("put another one there");
  }
  while (X509* between = PEM_read_bio_X509(certs.get(), nullptr, nullptr, nullptr)) {
    if (SSL_CTX_add0_chain_cert(made.context.get(), between) != 1) {
      X509_free(between);
      return Error(kBad, "TLS_REFUSED",
                   "a certificate in " + cert_path() + " cannot be used: " + LastReason())
          .Hint("put others there");
    }
  }
  ERR_clear_error();
  return made;
}

std::optional<absl::Status> HttpTls::Reload() {
  std::string seen;
  absl::StatusOr<Made> made = Read(&seen);
  if (seen == taken_) {
    refused_.clear();
    MutexLock lock(&mutex_);
    problem_ = absl::OkStatus();
    return std::nullopt;
  }
  if (made.ok()) {
    taken_ = seen;
    refused_.clear();
    MutexLock lock(&mutex_);
    made_ = *std::move(made);
    problem_ = absl::OkStatus();
    return absl::OkStatus();
  }
  // One of the two may be about to be replaced: what stays so is said.
  if (seen != refused_) {
    refused_ = seen;
    told_ = false;
    return std::nullopt;
  }
  MutexLock lock(&mutex_);
  problem_ = made.status();
  return std::exchange(told_, true) ? std::nullopt : std::optional(made.status());
}

void HttpTls::Watch(std::chrono::nanoseconds every,
                    std::function<void(const absl::Status& reloaded)> told) {
  thread_ = std::thread([this, every, told = std::move(told)] { Work(every, told); });
}

void HttpTls::Work(std::chrono::nanoseconds every,
                   const std::function<void(const absl::Status& reloaded)>& told) {
  while (true) {
    {
      MutexLock lock(&mutex_);
      const auto end = std::chrono::steady_clock::now() + every;
      for (auto now = std::chrono::steady_clock::now(); !ending_ && now < end;
           now = std::chrono::steady_clock::now()) {
        ended_.WaitFor(&mutex_, end - now);
      }
      if (ending_) {
        return;
      }
    }
    if (const auto reloaded = Reload()) told(*reloaded);
  }
}

}  // namespace strata
