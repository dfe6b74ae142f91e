// The one translation unit with Beast in it.
#include "coordinator/http/http_server.h"

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <thread>
#include <utility>

#include "common/status.h"

namespace strata {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return Error(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
               "cannot listen on " + address + " for HTTP: " + why)
      .Hint("choose another with --http-listen");
}

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, Handler handler)
      : options_(options), handler_(std::move(handler)), acceptor_(io_) {}

  ~BeastServer() override {
    io_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
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
    boost::system::error_code error;
    tcp::resolver resolver(io_);
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
    asio::co_spawn(io_, Accept(), asio::detached);
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  asio::awaitable<void> Accept() {
    while (true) {
      boost::system::error_code error;
      tcp::socket socket =
          co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        // Out of descriptors, most likely: wait for some to be closed.
        asio::steady_timer timer(io_, std::chrono::milliseconds(50));
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      if (connections_ >= options_.max_connections) {
        continue;  // Closed at once.
      }
      ++connections_;
      asio::co_spawn(io_, Serve(std::move(socket)),
                     [this](const std::exception_ptr&) { --connections_; });
    }
  }

  asio::awaitable<void> Serve(tcp::socket socket) {
    beast::tcp_stream stream(std::move(socket));
    beast::flat_buffer buffer;
    bool keep_alive = true;
    while (keep_alive) {
      http::request_parser<http::string_body> parser;
      parser.header_limit(static_cast<uint32_t>(options_.max_header_bytes));
      parser.body_limit(options_.max_body_bytes);
      boost::system::error_code error;
      stream.expires_after(options_.timeout);
      co_await http::async_read(stream, buffer, parser,
                                asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        break;
      }
      const auto& request = parser.get();
      keep_alive = request.keep_alive();
      http::response<http::string_body> response = Answer(request);
      stream.expires_after(options_.timeout);
      co_await http::async_write(stream, response,
                                 asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        break;
      }
    }
    boost::system::error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  http::response<http::string_body> Answer(const http::request<http::string_body>& request) const {
    HttpRequest in;
    in.method = std::string(request.method_string());
    const std::string target(request.target());
    const size_t question = target.find('?');
    in.path = target.substr(0, question);
    in.query = question == std::string::npos ? "" : target.substr(question + 1);
    in.body = request.body();
    HttpResponse out = handler_(in);
    http::response<http::string_body> response(static_cast<http::status>(out.status),
                                               request.version());
    response.set(http::field::content_type, out.content_type);
    response.keep_alive(request.keep_alive());
    if (request.method() != http::verb::head) {
      response.body() = std::move(out.body);
    }
    response.prepare_payload();
    return response;
  }

  const HttpOptions options_;
  const Handler handler_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  std::string address_;
  uint64_t connections_ = 0;  // On the server's thread.
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
