// One connection of the HTTP server. For http_server.cc, which compiles Beast with it, and for
// tests that poll a server by hand.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_CONNECTION_H_
#define STRATA_COORDINATOR_HTTP_HTTP_CONNECTION_H_

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/http/http_exchange.h"
#include "coordinator/http/http_server.h"

namespace strata {

// On the server's thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared, boost::asio::ip::tcp::socket socket);
  ~HttpConnection();

  void Run();
  // There may be something to send.
  void Flush(const HttpExchange* exchange);
  // Closes it now, or after the answer that it is at.
  void Close();
  void CloseWhenIdle();

 private:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  struct Tls {
    Tls(boost::beast::tcp_stream& over, boost::asio::ssl::context& context)
        : stream(over, context) {}

    boost::asio::ssl::stream<boost::beast::tcp_stream&> stream;
    std::array<char, 4096> ahead;  // What a watch reads into.
  };

  // Before the first request, where TLS is wanted.
  void Detect();
  void OnDetected(const Error& error, bool tls);
  void OnHandshake(const Error& error, size_t used);
  // Calls `use` with what bytes of HTTP are read from and written to.
  template <typename Use>
  void WithStream(const Use& use) {
    tls_ != nullptr ? use(tls_->stream) : use(stream_);
  }

  void ReadHeader();
  void OnHeader(const Error& error);
  void ReadBody();
  void OnBody(const Error& error);
  void Dispatch();
  // Takes in the header that was read: why its request is refused, if it is.
  std::optional<HttpResponse> TakeHead();
  // Makes room for the body of the request whose header was read, or says why not.
  std::optional<HttpResponse> HoldBody();
  // Answers what cannot be read, or may not, and ends.
  void Refuse(const HttpResponse& response);
  void Refuse(int status, std::string_view code, const std::string& message);
  void RefuseBody();
  // Notices the client's end of the connection while a request is answered, whatever is sent
  // before it.
  void Watch();
  void OnReadable(const Error& error);
  // With TLS, whose bytes cannot be waited for without reading them.
  void OnReadAhead(const Error& error, size_t n);
  void Send();
  void SendRest();
  void OnSent(const Error& error, size_t n);
  void AnswerSent();
  void EndSending();
  // Looks, as long as a request is answered, whether its client is to be shown that it lives.
  void KeepAlive(std::chrono::nanoseconds after);
  void OnKeepAlive();
  // Ends after the client has: what it still sends must not make it lose the answer.
  void Linger();

  const std::shared_ptr<HttpShared> shared_;
  boost::beast::tcp_stream stream_;
  std::unique_ptr<Tls> tls_;  // Over stream_; null: plain text.
  boost::asio::steady_timer alive_;
  std::chrono::steady_clock::time_point last_sent_;  // Or the request's arrival.
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpRequest head_;  // Of the request that is being read, without what trails its body.
  std::shared_ptr<HttpMemory::Part> held_;           // For the body that is being read.
  std::shared_ptr<HttpExchange> exchange_;           // Of the request that is being answered.
  std::shared_ptr<HttpConnection> busy_;             // Itself, while there is one.
  HttpExchange::Part part_;                          // Being sent.
  size_t sent_ = 0;                                  // Of it.
  std::chrono::steady_clock::time_point send_by_;    // All of it.
  void (HttpConnection::*after_watch_)() = nullptr;  // What waits for the watch to end.
  bool sending_ = false;
  bool watching_ = false;
  bool overrun_ = false;  // More was sent ahead than is kept: what follows is lost.
  bool closed_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_CONNECTION_H_
