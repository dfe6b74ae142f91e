#include "common/rpc/connection_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "common/certificates/authority.h"
#include "common/rpc/address.h"
#include "common/rpc/openssl_text.h"
#include "common/status.h"

namespace strata {
namespace {

using openssl::Owned;
using std::chrono::steady_clock;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
// What a client says first: the preface, and settings without any.
constexpr std::string_view kHello{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33};
constexpr size_t kFrameHead = 9;
constexpr char kSettings = 4;

class Connection {
 public:
  explicit Connection(std::chrono::milliseconds timeout) : end_(steady_clock::now() + timeout) {}
  ~Connection() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  absl::Status Connect(const HostPort& address) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int rc =
            getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
        rc != 0) {
      return Error(kUnavailable, "NAME_NOT_RESOLVED",
                   "the name does not resolve (" + std::string(gai_strerror(rc)) + ")");
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
    int error = ENETUNREACH;
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
      error = TryOne(*info);
      if (error == 0) {
        return absl::OkStatus();
      }
    }
    switch (error) {
      case ECONNREFUSED:
        return Error(kUnavailable, "CONNECTION_REFUSED", "connection refused")
            .Hint("check that it runs and listens there");
      case ETIMEDOUT:
        return Error(kUnavailable, "CONNECTION_TIMED_OUT", "connection timed out")
            .Hint("check the address, and the firewall there");
      case EHOSTUNREACH:
        return Error(kUnavailable, "NO_ROUTE", "no route to the host");
      case ENETUNREACH:
        return Error(kUnavailable, "NO_ROUTE", "the network is unreachable");
      default:
        return Error(kUnavailable, "NO_CONNECTION", std::strerror(error));
    }
  }

  // False: the time is over.
  bool Wait(short events) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end_ - steady_clock::now());
    pollfd waiting{.fd = fd_, .events = events, .revents = 0};
    return left.count() > 0 && poll(&waiting, 1, static_cast<int>(left.count())) > 0;
  }

  int fd() const { return fd_; }

 private:
  // 0, or errno.
  int TryOne(const addrinfo& info) {
    if (fd_ >= 0) {
      close(fd_);
    }
    fd_ = socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info.ai_protocol);
    if (fd_ < 0) {
      return errno;
    }
    if (connect(fd_, info.ai_addr, info.ai_addrlen) == 0) {
      return 0;
    }
    if (errno != EINPROGRESS) {
      return errno;
    }
    int error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (Wait(POLLOUT)) {
      getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    return error;
  }

  const steady_clock::time_point end_;
  int fd_ = -1;
};

absl::Status Silent() {
  return Error(kUnavailable, "SAYS_NOTHING", "it takes the connection but says nothing");
}

// What the first bytes of an answer to kHello are, or how there was none.
absl::Status JudgeAnswer(const std::string& answer) {
  if (answer.size() >= kFrameHead && answer[3] == kSettings) {
    return absl::OkStatus();
  }
  if (answer.size() >= 2 && answer[0] == 0x15 && answer[1] == 0x03) {
    return Error(kUnavailable, "TLS_WANTED", "it speaks TLS").Hint("give --tls-dir");
  }
  return Error(kUnavailable, "NO_GRPC", "what listens there speaks no gRPC")
      .Hint("check the port: gRPC's is the coordinator's --listen, not --http-listen");
}

absl::Status ProbePlain(Connection* connection) {
  (void)send(connection->fd(), kHello.data(), kHello.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 64> buffer;
  while (answer.size() < kFrameHead) {
    if (!connection->Wait(POLLIN)) {
      return Silent();
    }
    const ssize_t n = recv(connection->fd(), buffer.data(), buffer.size(), 0);
    if (n <= 0) {
      break;
    }
    answer.append(buffer.data(), static_cast<size_t>(n));
  }
  if (answer.empty()) {
    return Error(kUnavailable, "CONNECTION_CLOSED",
                 "it closes the connection; does it want --tls-dir?");
  }
  return JudgeAnswer(answer);
}

absl::Status NotAccepted(const TlsFiles& files, const std::string& said) {
  const std::string hint =
      files.own_chain.ok()
          ? "see its log: its ca.pem is of another CA than ours, its clock is wrong, or our "
            "certificate was revoked"
          : Describe(files.own_chain);
  return Error(kUnavailable, "TLS_NOT_ACCEPTED",
               "it does not accept the certificate in " + files.dir + "/cert.pem" + said)
      .Hint(hint);
}

absl::StatusOr<Owned<SSL_CTX>> MakeContext(const TlsFiles& files) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  X509_STORE* store = SSL_CTX_get_cert_store(context.get());
  for (const Owned<X509>& authority : openssl::ReadCertificates(files.ca)) {
    X509_STORE_add_cert(store, authority.get());
  }
  const std::vector<Owned<X509>> certs = openssl::ReadCertificates(files.cert);
  const Owned<BIO> in(BIO_new_mem_buf(files.key.data(), static_cast<int>(files.key.size())));
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr));
  bool good = !certs.empty() && key != nullptr &&
              SSL_CTX_use_certificate(context.get(), certs.front().get()) == 1 &&
              SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  for (size_t i = 1; good && i < certs.size(); ++i) {
    good = SSL_CTX_add1_chain_cert(context.get(), certs[i].get()) == 1;
  }
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2));
  // Nothing is said here that others may not hear: so the handshake goes on where the certificate
  // is wrong, and what was found is asked for behind it.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  if (!good) {
    return Error(absl::StatusCode::kInvalidArgument, "TLS_FILE_BAD",
                 "OpenSSL does not take " + files.dir + "/cert.pem");
  }
  return context;
}

// Whether `rc` of an SSL call means that it is to be tried again, after what it waits for came.
bool Again(Connection* connection, SSL* tls, int rc, bool* timed_out) {
  const int error = SSL_get_error(tls, rc);
  if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
    return false;
  }
  *timed_out = !connection->Wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT);
  return !*timed_out;
}

// While it lives this thread gets no SIGPIPE, which OpenSSL's writes to a closed connection raise
// and which ends a process that did not ask for it.
class NoSigPipe {
 public:
  NoSigPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigPipe() {
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigPipe(const NoSigPipe&) = delete;
  NoSigPipe& operator=(const NoSigPipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

absl::Status ProbeTls(Connection* connection, const HostPort& address, const TlsFiles& files) {
  const NoSigPipe no_sigpipe;
  ASSIGN_OR_RETURN(const Owned<SSL_CTX> context, MakeContext(files));
  const Owned<SSL> tls(SSL_new(context.get()));
  unsigned char binary[sizeof(in6_addr)];
  if (inet_pton(AF_INET, address.host.c_str(), binary) == 1 ||
      inet_pton(AF_INET6, address.host.c_str(), binary) == 1) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), address.host.c_str());
  } else {
    SSL_set_tlsext_host_name(tls.get(), address.host.c_str());
    SSL_set1_host(tls.get(), address.host.c_str());
  }
  SSL_set_fd(tls.get(), connection->fd());
  bool timed_out = false;
  int rc = 0;
  ERR_clear_error();
  while ((rc = SSL_connect(tls.get())) != 1 && Again(connection, tls.get(), rc, &timed_out)) {
  }
  if (timed_out) {
    return Silent();
  }
  if (rc != 1) {
    const unsigned long error = ERR_peek_last_error();
    const int reason = ERR_GET_REASON(error);
    ERR_clear_error();
    if (reason >= SSL_AD_REASON_OFFSET) {
      return NotAccepted(
          files,
          std::string(" (") + SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET) + ")");
    }
    if (error == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
      return Error(kUnavailable, "CONNECTION_CLOSED", "it ends the handshake")
          .Hint("check that it was started with --tls-dir");
    }
    return Error(kUnavailable, "NO_TLS", "it does not speak TLS")
        .Hint("start it with --tls-dir, as this end was");
  }
  const int verdict = static_cast<int>(SSL_get_verify_result(tls.get()));
  if (const Owned<X509> cert(SSL_get1_peer_certificate(tls.get()));
      verdict != X509_V_OK && cert != nullptr) {
    return openssl::Verdict(verdict, cert.get(), "its certificate", openssl::Authorities(files.ca));
  }
  // With TLS 1.3 the other end looks at our certificate when we have long shaken hands.
  std::string answer;
  std::array<char, 64> buffer;
  while ((rc = SSL_write(tls.get(), kHello.data(), static_cast<int>(kHello.size()))) <= 0 &&
         Again(connection, tls.get(), rc, &timed_out)) {
  }
  while (rc > 0 && answer.size() < kFrameHead) {
    rc = SSL_read(tls.get(), buffer.data(), buffer.size());
    if (rc > 0) {
      answer.append(buffer.data(), static_cast<size_t>(rc));
    } else if (Again(connection, tls.get(), rc, &timed_out)) {
      rc = 1;
    }
  }
  if (timed_out) {
    return Silent();
  }
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  ERR_clear_error();
  if (!answer.empty()) {
    return JudgeAnswer(answer);
  }
  return NotAccepted(
      files,
      reason >= SSL_AD_REASON_OFFSET
          ? std::string(" (") + SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET) + ")"
          : "");
}

absl::StatusOr<std::string> PemOf(X509* cert) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  char* data = nullptr;
  if (PEM_write_bio_X509(out.get(), cert) != 1) {
    return Error(absl::StatusCode::kInternal, "TLS_FAILED", "cannot write a certificate");
  }
  const auto size = static_cast<size_t>(BIO_get_mem_data(out.get(), &data));
  return std::string(data, size);
}

}  // namespace

absl::StatusOr<std::string> FetchAuthority(const std::string& address, const std::string& sha256,
                                           std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  Connection connection(timeout);
  RETURN_IF_ERROR(connection.Connect(parsed));
  const NoSigPipe no_sigpipe;
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const Owned<SSL> tls(SSL_new(context.get()));
  SSL_set_fd(tls.get(), connection.fd());
  bool timed_out = false;
  int rc = 0;
  ERR_clear_error();
  while ((rc = SSL_connect(tls.get())) != 1 && Again(&connection, tls.get(), rc, &timed_out)) {
  }
  ERR_clear_error();
  if (timed_out) {
    return Silent();
  }
  if (rc != 1) {
    return Error(kUnavailable, "NO_TLS",
                 "it does not speak TLS as a coordinator's port for joining")
        .Hint(
            "check that the coordinator runs with --authority, and that the token is of this "
            "cluster");
  }
  const STACK_OF(X509)* shown = SSL_get_peer_cert_chain(tls.get());
  for (int i = 0; i < sk_X509_num(shown); ++i) {
    ASSIGN_OR_RETURN(std::string pem, PemOf(sk_X509_value(shown, i)));
    const auto fingerprint = CertificateFingerprint(pem);
    if (fingerprint.ok() && *fingerprint == sha256) {
      return pem;
    }
  }
  return Error(kUnavailable, "TLS_WRONG_CA",
               "what listens there is not of the authority that the token names")
      .Hint(
          "have a new token made by the coordinator that is meant; if it is that one, somebody "
          "else answers for it");
}

absl::Status ProbeConnection(const std::string& address, const TlsFiles* files,
                             std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  Connection connection(timeout);
  RETURN_IF_ERROR(connection.Connect(parsed));
  return files == nullptr ? ProbePlain(&connection) : ProbeTls(&connection, parsed, *files);
}

bool IsOfTls(const absl::Status& cause) {
  const std::string reason = ReasonOf(cause);
  return reason == "NO_TLS" || reason.starts_with("TLS_");
}

bool IsLastingCause(const absl::Status& cause) {
  const std::string reason = ReasonOf(cause);
  return reason == "CONNECTION_REFUSED" || reason == "NAME_NOT_RESOLVED" || reason == "NO_GRPC" ||
         IsOfTls(cause);
}

}  // namespace strata
