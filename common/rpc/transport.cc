#include "common/rpc/transport.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <fstream>
#include <iterator>

#include "absl/synchronization/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/health_service.h"
#include "common/rpc/io_loop.h"
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

absl::StatusOr<std::string> ReadPem(const std::string& dir, const std::string& name) {
  const std::string path = dir + "/" + name;
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof()) {
    return Error(absl::StatusCode::kNotFound, "TLS_FILE_MISSING", "cannot read " + path)
        .Hint("--tls-dir is a folder with ca.pem, cert.pem and key.pem");
  }
  if (text.find("-----BEGIN") == std::string::npos) {
    return Error(absl::StatusCode::kInvalidArgument, "TLS_FILE_BAD", path + " is no PEM file")
        .Hint("--tls-dir is a folder with ca.pem, cert.pem and key.pem");
  }
  return text;
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
  ASSIGN_OR_RETURN(const std::string ca, ReadPem(security.tls_dir, "ca.pem"));
  ASSIGN_OR_RETURN(const std::string cert, ReadPem(security.tls_dir, "cert.pem"));
  ASSIGN_OR_RETURN(const std::string key, ReadPem(security.tls_dir, "key.pem"));
  grpc::SslCredentialsOptions client;
  client.pem_root_certs = ca;
  client.pem_cert_chain = cert;
  client.pem_private_key = key;
  transport.client_ = grpc::SslCredentials(client);
  grpc::SslServerCredentialsOptions server(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  server.pem_root_certs = ca;
  server.pem_key_cert_pairs.push_back({key, cert});
  transport.server_ = grpc::SslServerCredentials(server);
  return transport;
}

std::shared_ptr<grpc::Channel> Transport::MakeChannel(const std::string& address,
                                                      int max_received) const {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(max_received);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  for (const auto& argument : kConnectionArguments) {
    args.SetInt(argument.name, argument.value);
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

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const Transport& transport, const std::string& address,
    const std::vector<IoService*>& services) {
  ASSIGN_OR_RETURN(HostPort bound, ParseHostPort(address));
  RETURN_IF_ERROR(CanListen(bound));
  auto server = std::unique_ptr<RpcServer>(new RpcServer());
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, transport.server_credentials(), &server->port_);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxControlBytes);  // Who reads may take less.
  for (const auto& argument : kConnectionArguments) {
    builder.AddChannelArgument(argument.name, argument.value);
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
    return Error(absl::StatusCode::kAlreadyExists, "ADDRESS_IN_USE", "cannot listen on " + address)
        .Hint("choose another port with --listen (port 0 picks a free one)");
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
