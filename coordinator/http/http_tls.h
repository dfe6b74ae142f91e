// The certificate that the HTTP listener shows. It is taken from its files anew when they change.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_TLS_H_
#define STRATA_COORDINATOR_HTTP_HTTP_TLS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/openssl_owned.h"
#include "common/mutex.h"

namespace strata {

// Any thread.
class HttpTls {
 public:
  // Reads `dir`/cert.pem (a certificate, and behind it those that lead to its authority) and
  // `dir`/key.pem; `flag` is what named the folder. Errors name the file and what to do:
  // TLS_FILE_MISSING (NOT_FOUND), TLS_FILE_UNREADABLE, TLS_FILE_BAD, TLS_KEY_MISMATCH, TLS_EXPIRED,
  // TLS_NOT_YET_VALID, TLS_REFUSED (a key that is too short).
  static absl::StatusOr<std::shared_ptr<HttpTls>> Open(const std::string& dir,
                                                       const std::string& flag);
  // Of the folder that `dir` names at the time, which any thread may call, each time they are read.
  static absl::StatusOr<std::shared_ptr<HttpTls>> Open(std::function<std::string()> dir,
                                                       const std::string& flag);
  ~HttpTls();
  HttpTls(const HttpTls&) = delete;
  HttpTls& operator=(const HttpTls&) = delete;

  // For one handshake: TLS 1.2 at least, ALPN http/1.1, no certificate of the client's.
  openssl::Owned<SSL_CTX> context() const STRATA_EXCLUDES(mutex_);

  // Reads the files. OK where new ones were taken; why not, where those that are there cannot be
  // used, once for each of them and once they stay as they are; else nothing. For one thread.
  std::optional<absl::Status> Reload() STRATA_EXCLUDES(mutex_);
  // Has a thread of its own do so that often, until this ends, which tells what came of it.
  void Watch(std::chrono::nanoseconds every,
             std::function<void(const absl::Status& reloaded)> told);

  // Why the files that are there are not in use; OK where they are.
  absl::Status problem() const STRATA_EXCLUDES(mutex_);
  // When the certificate in use ends, in seconds since 1970; "DIR/cert.pem".
  int64_t not_after_s() const STRATA_EXCLUDES(mutex_);
  int64_t not_before_s() const STRATA_EXCLUDES(mutex_);
  std::string cert_path() const { return dir_() + "/cert.pem"; }
  std::string dir() const { return dir_(); }

 private:
  // What was made of two files.
  struct Made {
    openssl::Owned<SSL_CTX> context;
    int64_t not_before_s = 0;
    int64_t not_after_s = 0;
  };

  HttpTls(std::function<std::string()> dir, std::string flag)
      : dir_(std::move(dir)), flag_(std::move(flag)) {}

  // `seen`: what tells these files from others, whether they are of use or not.
  absl::StatusOr<Made> Read(std::string* seen) const;
  absl::StatusOr<std::string> ReadFile(const std::string& path) const;
  void Work(std::chrono::nanoseconds every,
            const std::function<void(const absl::Status& reloaded)>& told) STRATA_EXCLUDES(mutex_);

  const std::function<std::string()> dir_;
  const std::string flag_;
  std::string taken_;    // Of Reload's thread: the files in use,
  std::string refused_;  // those that cannot be used,
  bool told_ = false;    // whether that was said.
  mutable Mutex mutex_;
  CondVar ended_;
  bool ending_ STRATA_GUARDED_BY(mutex_) = false;
  Made made_ STRATA_GUARDED_BY(mutex_);
  absl::Status problem_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_TLS_H_
