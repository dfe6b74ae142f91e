#include "common/rpc/transport.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <ctime>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/connection_probe.h"
#include "common/rpc/health_service.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/rpc/text_status.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr int kKeepaliveTimeMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;

// Of both ends of a connection. Frames do not compress, and what gRPC would count of each message
// nobody reads.
constexpr struct {
  const char* name;
  int value;
} kConnectionArguments[] = {
    {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
    {GRPC_ARG_ENABLE_CHANNELZ, 0},
};

// How long a sentence about refused clients is not said again, and how many are remembered.
constexpr std::chrono::minutes kSayAgain{1};
constexpr size_t kMaxSaid = 256;

// Tells of refused clients, the same sentence at most once a minute. Any thread.
class RefusalTeller {
 public:
  explicit RefusalTeller(std::function<void(const absl::Status&)> on_refused)
      : on_refused_(std::move(on_refused)) {}

  void Tell(const absl::Status& why) {
    const auto now = std::chrono::steady_clock::now();
    {
      MutexLock lock(&mutex_);
      if (said_.size() >= kMaxSaid) {
        said_.clear();
      }
      const auto [it, added] = said_.try_emplace(Describe(why), now);
      if (!added && now - it->second < kSayAgain) {
        return;
      }
      it->second = now;
    }
    if (on_refused_) {
      on_refused_(why);
    }
  }

 private:
  const std::function<void(const absl::Status&)> on_refused_;
  Mutex mutex_;
  std::map<std::string, std::chrono::steady_clock::time_point> said_ STRATA_GUARDED_BY(mutex_);
};

// Decides on clients' certificates in gRPC's place, which refuses them as this does and does not
// say why. The handshake has shown that the client has the key.
class ClientVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  ClientVerifier(std::shared_ptr<const LiveTls> live, std::shared_ptr<RefusalTeller> teller)
      : live_(std::move(live)), teller_(std::move(teller)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* sync_status) override {
    const auto view = [](grpc::string_ref text) {
      return std::string_view(text.data(), text.size());
    };
    const absl::Status verdict =
        live_->CheckPeer(view(request->peer_cert()), view(request->peer_cert_full_chain()),
                         "a client's certificate");
    *sync_status = verdict.ok()
                       ? grpc::Status::OK
                       : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, Describe(verdict));
    if (!verdict.ok()) {
      teller_->Tell(verdict);
    }
    return true;  // At once.
  }

  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::shared_ptr<const LiveTls> live_;
  const std::shared_ptr<RefusalTeller> teller_;
};

// Refuses each call of a connection whose certificate has lapsed or was revoked since it was
// opened.
class CallGate : public grpc::AuthMetadataProcessor {
 public:
  CallGate(std::shared_ptr<const LiveTls> live, std::shared_ptr<RefusalTeller> teller)
      : live_(std::move(live)), teller_(std::move(teller)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& /*metadata*/, grpc::AuthContext* peer,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*answer*/) override {
    const std::string cert = PeerCertificate(*peer);
    const absl::Status good =
        cert.empty() ? absl::OkStatus() : live_->CheckStillGood(cert, std::time(nullptr));
    if (good.ok()) {
      return grpc::Status::OK;
    }
    teller_->Tell(good);
    return ToGrpcAsText(good);
  }

 private:
  const std::shared_ptr<const LiveTls> live_;
  const std::shared_ptr<RefusalTeller> teller_;
};

using Provider = grpc::experimental::CertificateProviderInterface;

// How often gRPC looks at files in memory.
constexpr unsigned kRefreshS = 1;

std::shared_ptr<Provider> MakeProvider(const LiveTls& live) {
  namespace tls = grpc::experimental;
  if (live.pair_file() != nullptr) {
    return std::make_shared<tls::FileWatcherCertificateProvider>(
        live.pair_file()->path(), live.pair_file()->path(), live.ca_file()->path(), kRefreshS);
  }
  const auto files = live.files();
  return std::make_shared<tls::StaticDataCertificateProvider>(
      files->ca, std::vector<tls::IdentityKeyCertPair>{{files->key, files->cert}});
}

// What a port for joining shows: the authority behind the certificate.
std::shared_ptr<Provider> MakeShownProvider(const LiveTls& live) {
  namespace tls = grpc::experimental;
  if (live.shown_file() != nullptr) {
    return std::make_shared<tls::FileWatcherCertificateProvider>(
        live.shown_file()->path(), live.shown_file()->path(), kRefreshS);
  }
  const auto files = live.files();
  return std::make_shared<tls::StaticDataCertificateProvider>(
      std::vector<tls::IdentityKeyCertPair>{{files->key, files->cert + "\n" + files->ca}});
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const std::shared_ptr<Provider>& provider, const std::shared_ptr<const LiveTls>& live,
    const std::function<void(const absl::Status&)>& on_refused) {
  namespace tls = grpc::experimental;
  const auto teller = std::make_shared<RefusalTeller>(on_refused);
  tls::TlsServerCredentialsOptions options(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<ClientVerifier>(live, teller));
  auto credentials = tls::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<CallGate>(live, teller));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> MakeFollowingCredentials(
    const std::shared_ptr<Provider>& provider) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

absl::StatusOr<Transport> Transport::Make(const TransportSecurity& security) {
  if (!security.tls_dir.empty() && security.insecure) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAGS",
                 "--tls-dir and --insecure exclude each other");
  }
  Transport transport;
  transport.security_ = security;
  if (security.tls_dir.empty()) {
    transport.client_ = grpc::InsecureChannelCredentials();
    transport.server_ = grpc::InsecureServerCredentials();
    return transport;
  }
  LiveTlsOptions tls = security.tls;
  tls.dir = security.tls_dir;
  ASSIGN_OR_RETURN(transport.live_, LiveTls::Open(std::move(tls), std::time(nullptr)));
  bool follows = security.follow_files;
  if (follows) {
    const absl::Status followed = transport.live_->Follow();
    if (!followed.ok() && !absl::IsUnimplemented(followed)) {
      return followed;
    }
    follows = followed.ok();
    if (!follows && security.tls.on_refused) {
      security.tls.on_refused(followed);
    }
  }
  transport.provider_ = MakeProvider(*transport.live_);
  if (follows) {
    transport.client_ = MakeFollowingCredentials(transport.provider_);
  } else {
    const auto files = transport.live_->files();
    grpc::SslCredentialsOptions client;
    client.pem_root_certs = files->ca;
    client.pem_cert_chain = files->cert;
    client.pem_private_key = files->key;
    transport.client_ = grpc::SslCredentials(client);
  }
  transport.server_ =
      MakeServerCredentials(transport.provider_, transport.live_, security.on_refused_client);
  return transport;
}

std::shared_ptr<grpc::Channel> Transport::MakeChannel(const std::string& address, int max_received,
                                                      Patience patience) const {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(max_received);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  for (const auto& argument : kConnectionArguments) {
    // Set twice, the first would count.
    const bool never = patience == Patience::kPatient &&
                       std::string_view(argument.name) == GRPC_ARG_KEEPALIVE_TIME_MS;
    args.SetInt(argument.name, never ? std::numeric_limits<int>::max() : argument.value);
  }
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // Despite its name what an attempt has to connect and shake hands, which takes longer on a busy
  // machine than the first wait between two attempts.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  return grpc::CreateCustomChannel("dns:///" + address, client_, args);
}

absl::Status Transport::CheckAddress(const std::string& address, const std::string& flag) const {
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  if (IsLoopback(parsed.host) || security_.insecure || secure()) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "SECURITY_REQUIRED",
               flag + " " + address +
                   " is off loopback, and neither --tls-dir nor --insecure is given")
      .Hint(
          "give --tls-dir DIR (ca.pem, cert.pem, key.pem), or --insecure on a network that you "
          "trust");
}

absl::StatusOr<Transport> Transport::ForJoining() const {
  if (live_ == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "TLS_WANTED",
                 "nobody can get a certificate from a coordinator that has none")
        .Hint("give --tls-dir; `strata cluster init` makes what it needs");
  }
  Transport transport = *this;
  transport.provider_ = MakeShownProvider(*live_);
  grpc::experimental::TlsServerCredentialsOptions options(transport.provider_);
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  transport.server_ = grpc::experimental::TlsServerCredentials(options);
  return transport;
}

Transport Transport::TrustingOnly(const std::string& ca) {
  Transport transport;
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ca;
  transport.client_ = grpc::SslCredentials(options);
  transport.server_ = grpc::InsecureServerCredentials();
  return transport;
}

absl::Status Transport::CheckServes(const std::string& host) const {
  if (live_ == nullptr) {
    return absl::OkStatus();
  }
  const auto files = live_->files();
  RETURN_IF_ERROR(files->own_chain);
  if (host.empty()) {
    return absl::OkStatus();
  }
  live_->KeepHost(host);
  return CheckCertificateName(files->cert, host, "the certificate in " + files->dir + "/cert.pem");
}

absl::Status Transport::Probe(const std::string& address, std::chrono::milliseconds timeout) const {
  return ProbeConnection(address, tls().get(), timeout);
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const Transport& transport, const std::string& address,
    const std::vector<IoService*>& services) {
  ASSIGN_OR_RETURN(HostPort bound, ParseHostPort(address));
  RETURN_IF_ERROR(transport.CheckServes(""));
  RETURN_IF_ERROR(CanListen(bound));
  auto server = std::unique_ptr<RpcServer>(new RpcServer());
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, transport.server_credentials(), &server->port_);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxControlBytes);  // Who reads may take less.
  for (const auto& argument : kConnectionArguments) {
    builder.AddChannelArgument(argument.name, argument.value);
  }
  if (transport.live() != nullptr) {
    server->live_ = transport.live();
    builder.AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_MS,
        static_cast<int>(
            std::chrono::ceil<std::chrono::milliseconds>(transport.max_connection_age()).count()));
  }
  // Without this two processes could share a port, each with half of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveTimeMs / 2);
  std::vector<IoService*> all = services;
  all.push_back(server->health_.get());
  for (IoService* service : all) {
    builder.RegisterService(service->NewService());
  }
  server->loop_ = std::make_unique<IoLoop>(builder.AddCompletionQueue());
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    // Taken meanwhile; or gRPC does not want to listen for a reason of its own.
    absl::Status taken = CanListen(bound);
    return !taken.ok() ? taken
                       : Error(absl::StatusCode::kInternal, "CANNOT_SERVE",
                               "gRPC does not serve on " + address + ", though it is free")
                             .Hint(transport.secure() ? "check the files in --tls-dir" : "");
  }
  bound.port = static_cast<uint16_t>(server->port_);
  server->address_ = bound.ToString();
  for (IoService* service : all) {
    service->Serve(server->loop_.get());
  }
  return server;
}

RpcServer::RpcServer() : health_(std::make_unique<HealthService>()) {}

RpcServer::~RpcServer() {
  Shutdown(std::chrono::milliseconds(0));
  if (loop_ != nullptr) {
    loop_->Stop();
  }
}

void RpcServer::SetServing(bool serving) { health_->SetServing(serving); }

size_t RpcServer::EndRevokedCalls() {
  return live_ == nullptr ? 0 : loop_->CancelServed([this](const grpc::ServerContext& context) {
    const std::string cert = PeerCertificate(context);
    return !cert.empty() && !live_->CheckNotRevoked(cert).ok();
  });
}

void RpcServer::Shutdown(std::chrono::milliseconds grace) {
  if (server_ != nullptr) {
    health_->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
    loop_->AwaitServed();  // gRPC itself waits for connections only.
  }
}

void SetUpGrpc() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace strata
