#include "coordinator/http/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>
#include <utility>

#include "common/status.h"
#include "coordinator/http/http_connection.h"

namespace strata {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Failure = boost::system::error_code;

std::string TooMany(uint64_t most) {
  const std::string body =
      R"({"error":{"message":"there are )" + std::to_string(most) +
      R"( connections already: --max-http-connections of strata-coordinator","type":)"
      R"("server_error","param":null,"code":"too_many_connections"}})";
  return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
         "Connection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return Error(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
               "cannot listen on " + address + " for HTTP: " + why)
      .Hint("choose another with --http-listen");
}

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, Handler handler)
      : shared_(std::make_shared<HttpShared>(options, std::move(handler))),
        work_(shared_->io.get_executor()),
        acceptor_(shared_->io),
        again_(shared_->io) {}

  ~BeastServer() override {
    shared_->io.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
    Failure ignored;
    acceptor_.close(ignored);
    again_.cancel();
    for (const auto& connection : Connections()) {
      connection->Close();
    }
    // What was under way ends, and lets go of its connection.
    shared_->io.restart();
    shared_->io.poll();
  }

  absl::Status Listen(const std::string& address) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos) {
      return CannotListen(address, "it is not of the form HOST:PORT");
    }
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    Failure error;
    tcp::resolver resolver(shared_->io);
    const auto found = resolver.resolve(host, address.substr(colon + 1), error);
    if (error || found.empty()) {
      return CannotListen(address, error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return CannotListen(address, error.message());
    }
    address_ = (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
               std::to_string(acceptor_.local_endpoint().port());
    Accept();
    thread_ = std::thread([this] { shared_->io.run(); });
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

  void Post(std::function<void()> task) override { asio::post(shared_->io, std::move(task)); }

  void Shutdown(std::chrono::nanoseconds timeout) override {
    asio::post(shared_->io, [this] {
      shared_->stopping = true;
      Failure ignored;
      acceptor_.close(ignored);
      for (const auto& connection : Connections()) {
        connection->CloseWhenIdle();
      }
    });
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < end) {
      std::promise<size_t> live;
      asio::post(shared_->io, [&] { live.set_value(shared_->connections.size()); });
      if (live.get_future().get() == 0) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  std::vector<std::shared_ptr<HttpConnection>> Connections() const {
    std::vector<std::shared_ptr<HttpConnection>> connections;
    for (HttpConnection* connection : shared_->connections) {
      if (auto live = connection->weak_from_this().lock()) connections.push_back(std::move(live));
    }
    return connections;
  }

  void Accept() {
    acceptor_.async_accept([this](const Failure& error, tcp::socket socket) {
      if (shared_->stopping || error == asio::error::operation_aborted) {
        return;
      }
      if (error) {
        // Out of descriptors, most likely: wait for some to be closed.
        again_.expires_after(std::chrono::milliseconds(50));
        again_.async_wait([this](const Failure& cancelled) {
          if (!cancelled) Accept();
        });
        return;
      }
      Take(std::move(socket));
      Accept();
    });
  }

  void Take(tcp::socket socket) {
    if (shared_->connections.size() < shared_->options.max_connections) {
      std::make_shared<HttpConnection>(shared_, std::move(socket))->Run();
      return;
    }
    if (shared_->options.tls != nullptr) {
      return;  // Nobody would understand it.
    }
    Failure ignored;
    socket.non_blocking(true, ignored);
    const std::string refusal = TooMany(shared_->options.max_connections);
    socket.write_some(asio::buffer(refusal), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  const std::shared_ptr<HttpShared> shared_;
  // The thread goes on without connections: Shutdown asks it.
  const asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer again_;
  std::string address_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              const HttpOptions& options,
                                                              Handler handler) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler));
  RETURN_IF_ERROR(server->Listen(address));
  return server;
}

}  // namespace strata
