// How processes reach each other: channels, servers and who is trusted.
#ifndef STRATA_COMMON_RPC_TRANSPORT_H_
#define STRATA_COMMON_RPC_TRANSPORT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/live_tls.h"
#include "common/rpc/tls_files.h"

namespace grpc {
class Channel;
class ChannelCredentials;
class Server;
class ServerCredentials;
class Service;
namespace experimental {
class CertificateProviderInterface;
}  // namespace experimental
}  // namespace grpc

namespace strata {

// The flags --tls-dir and --insecure.
struct TransportSecurity {
  // Folder with ca.pem, cert.pem and key.pem: both ends show a certificate of that CA (mutual
  // TLS). Empty: plain text.
  std::string tls_dir;
  // Plain text is wanted off loopback too.
  bool insecure = false;
  // With TLS: told why a client's certificate was refused, whose it is, and what to do; the same
  // sentence at most once a minute. On gRPC's threads; must not wait. Empty: nobody is told.
  std::function<void(const absl::Status& why)> on_refused_client{};
  // With TLS: the files are taken anew while the process runs (LiveTls), for connections from then
  // on; else they are read once. `tls` has what LiveTls wants besides.
  bool follow_files = false;
  LiveTlsOptions tls{};
  // With TLS: a server has a connection handed over to a new one after so long, give or take a
  // tenth. What is open goes on; from its next call on a client shows the certificate of then.
  std::chrono::nanoseconds max_connection_age = std::chrono::hours(1);
};

// Largest message on any RPC, but for what a coordinator tells a worker: that names every tensor of
// a stage, in some 140 bytes each, and quantized experts are tens of thousands.
inline constexpr int kMaxMessageBytes = 4 << 20;
inline constexpr int kMaxControlBytes = 256 << 20;

// Makes channels and listeners of one kind of security. Copyable; any thread.
class Transport {
 public:
  // INVALID_ARGUMENT when both flags are given; what ReadTlsFiles says of the files of tls_dir.
  static absl::StatusOr<Transport> Make(const TransportSecurity& security);

  // For a port at which others get their certificates (RpcServer): it shows this one's, with that
  // of the authority behind it, and wants none. INVALID_ARGUMENT (TLS_WANTED) in plain text.
  absl::StatusOr<Transport> ForJoining() const;
  // Dials whoever is of the authority `ca` (PEM), by TLS, and shows nothing. Only MakeChannel is of
  // use.
  static Transport TrustingOnly(const std::string& ca);

  // A lazy channel with a connection of its own (no sharing between channels), keepalive pings,
  // no retries, no proxy. `address` is host:port; `max_received`: the largest message from there.
  // Without pings (kPatient) a connection to a machine that stands still lasts until the system
  // gives it up, for a quarter of an hour or longer.
  enum class Patience { kPings, kPatient };
  std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                             int max_received = kMaxMessageBytes,
                                             Patience patience = Patience::kPings) const;

  // INVALID_ARGUMENT (SECURITY_REQUIRED), naming the flags, when `address` is off loopback and
  // neither flag was given. `flag` names the address's own flag in the message.
  absl::Status CheckAddress(const std::string& address, const std::string& flag) const;

  // Whether others can trust what serves with these files (TLS_WRONG_CA), and reach it by `host`, a
  // name or an address (TLS_WRONG_NAME); "": any. For whoever starts a server, before others are
  // told to dial it; files that lack that host are not taken later. OK in plain text.
  absl::Status CheckServes(const std::string& host) const;

  // Why no connection to `address` comes about (connection_probe.h). OK: one does.
  absl::Status Probe(const std::string& address, std::chrono::milliseconds timeout) const;

  // The files in use now. Null in plain text.
  std::shared_ptr<const TlsFiles> tls() const {
    return live_ == nullptr ? nullptr : live_->files();
  }
  // Null in plain text.
  const std::shared_ptr<LiveTls>& live() const { return live_; }
  std::chrono::nanoseconds max_connection_age() const { return security_.max_connection_age; }

  bool secure() const { return !security_.tls_dir.empty(); }
  const std::shared_ptr<grpc::ServerCredentials>& server_credentials() const { return server_; }

 private:
  TransportSecurity security_;
  // What new files reach, for credentials that follow them; else null.
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
  std::shared_ptr<LiveTls> live_;
  std::shared_ptr<grpc::ChannelCredentials> client_;
  std::shared_ptr<grpc::ServerCredentials> server_;
};

class HealthService;
class IoLoop;

// A service whose calls are on the server's loop. What its handlers wait for is waited for on
// threads of ours (blocking_call.h).
class IoService {
 public:
  virtual ~IoService() = default;
  // What to register: a new one each time, since gRPC takes one for one server only. The server
  // before has ended.
  virtual grpc::Service* NewService() = 0;
  // The server runs: from now on the service takes calls, until the server ends.
  virtual void Serve(IoLoop* loop) = 0;
};

// A listening server with the gRPC health service, and the loop that serves it. There are neither
// synchronous nor callback services: these have gRPC start threads, which all wait for the same
// sockets, so that whichever wakes first has to wake the one that the data is for. Any thread.
class RpcServer {
 public:
  // Services are not owned and outlive the server. Port 0 picks a free one. ALREADY_EXISTS
  // (ADDRESS_IN_USE) or INVALID_ARGUMENT when `address` cannot be listened on.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Transport& transport,
                                                          const std::string& address,
                                                          const std::vector<IoService*>& services);
  ~RpcServer();  // Shuts down at once. Clients on its loop have ended.
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // host:port as bound.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Ends the open calls of those whose certificate has been revoked (LiveTls::SetRevocations), and
  // says how many.
  size_t EndRevokedCalls();

  // For clients of the same process, so that it needs no thread more.
  IoLoop* loop() { return loop_.get(); }

  // What the health service answers; serving from the start.
  void SetServing(bool serving);

  // Takes no new calls, waits up to `grace` for those running, cancels the rest, returns when all
  // have ended. Handlers that block on other things must be woken by their owners first.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  RpcServer();
  const std::unique_ptr<HealthService> health_;
  std::shared_ptr<LiveTls> live_;  // Null in plain text.
  std::unique_ptr<IoLoop> loop_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  int port_ = 0;
};

// Sets what gRPC has for the whole process. Call first thing in main. Drops the lines that gRPC
// itself writes to stderr: every failure reaches us as a status, which we log with its context.
// Turns off the search for lock cycles that distributions leave on in Abseil: it costs gRPC's locks
// a tenth of a step's way.
void SetUpGrpc();

}  // namespace strata

#endif  // STRATA_COMMON_RPC_TRANSPORT_H_
