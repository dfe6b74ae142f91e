// One connection of the HTTP server, and the answer that is being written to it. For
// http_server.cc, which compiles Beast with it, and for tests that poll a server by hand.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_CONNECTION_H_
#define STRATA_COORDINATOR_HTTP_HTTP_CONNECTION_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/mutex.h"
#include "coordinator/http/http_server.h"

namespace strata {

class HttpConnection;

// What the connections of a server share. On the server's thread, but for `io`, which takes posts
// from any.
struct HttpShared {
  HttpShared(const HttpOptions& o, HttpServer::Handler h) : options(o), handler(std::move(h)) {}

  const HttpOptions options;
  const HttpServer::Handler handler;
  boost::asio::io_context io{1};
  std::set<HttpConnection*> connections;
  bool stopping = false;  // Connections end with the answer that they are at.
};

// The answer to one request. Its user's side is any thread; what it says waits here until the
// connection takes it, on the server's thread.
class HttpExchange {
 public:
  // `head_only`: for HEAD. Without `chunked` a stream ends with its connection.
  HttpExchange(std::shared_ptr<HttpShared> shared, std::weak_ptr<HttpConnection> connection,
               bool head_only, bool chunked, bool keep_alive)
      : shared_(std::move(shared)),
        connection_(std::move(connection)),
        head_only_(head_only),
        chunked_(chunked),
        keep_alive_(keep_alive) {}

  // HttpResponder's.
  void Answer(const HttpResponse& response);
  void Begin(const HttpResponse& head);
  absl::Status Write(std::string_view piece);
  void End(std::string_view piece);
  void OnGone(std::function<void()> gone);
  void OnIdle(std::function<void()> idle);
  // Its user is gone: ends it if nothing else did.
  void Abandon();

  // For the connection.
  struct Part {
    std::string bytes;
    bool last = false;   // The answer ends with it.
    bool close = false;  // And the connection after it.
  };
  Part Take();          // All that waits; empty: nothing yet.
  void Sent(size_t n);  // Bytes of a part that the client's side has taken.
  // The connection ends with it; its head says so if it was not written yet.
  void CloseAfter();
  void ClientGone();
  // Nothing was sent for a while.
  void Idle();

 private:
  // What its user wants to be told, until the end. Let go of without the lock: what they hold may
  // be the last of much.
  struct Listeners {
    std::function<void()> gone;
    std::function<void()> idle;
  };

  void Head(const HttpResponse& response, std::optional<size_t> length) STRATA_REQUIRES(mutex_);
  void Frame(std::string_view piece) STRATA_REQUIRES(mutex_);
  // Has the connection look for what waits.
  void Wake() STRATA_REQUIRES(mutex_);

  const std::shared_ptr<HttpShared> shared_;
  const std::weak_ptr<HttpConnection> connection_;
  const bool head_only_;
  const bool chunked_;

  Mutex mutex_;
  bool keep_alive_ STRATA_GUARDED_BY(mutex_);
  std::string waiting_ STRATA_GUARDED_BY(mutex_);
  size_t sending_ STRATA_GUARDED_BY(mutex_) = 0;  // Bytes taken, less those sent.
  bool woken_ STRATA_GUARDED_BY(mutex_) = false;
  bool begun_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  bool close_ STRATA_GUARDED_BY(mutex_) = false;  // The connection, after the end.
  bool slow_ STRATA_GUARDED_BY(mutex_) = false;
  bool gone_ STRATA_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const HttpMemory::Part> held_ STRATA_GUARDED_BY(mutex_);
  Listeners listeners_ STRATA_GUARDED_BY(mutex_);
};

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

  void ReadHeader();
  void OnHeader(const Error& error);
  void ReadBody();
  void OnBody(const Error& error);
  void Dispatch();
  // Why the request whose header was read is refused, if it is.
  std::optional<HttpResponse> CheckHead() const;
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
  void Send();
  void SendRest();
  void OnSent(const Error& error, size_t n);
  void AnswerSent();
  // Looks, as long as a request is answered, whether its client is to be shown that it lives.
  void KeepAlive(std::chrono::nanoseconds after);
  void OnKeepAlive();
  // Ends after the client has: what it still sends must not make it lose the answer.
  void Linger();

  const std::shared_ptr<HttpShared> shared_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer alive_;
  std::chrono::steady_clock::time_point last_sent_;  // Or the request's arrival.
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<HttpMemory::Part> held_;         // For the body that is being read.
  std::shared_ptr<HttpExchange> exchange_;         // Of the request that is being answered.
  std::shared_ptr<HttpConnection> busy_;           // Itself, while there is one.
  HttpExchange::Part part_;                        // Being sent.
  size_t sent_ = 0;                                // Of it.
  std::chrono::steady_clock::time_point send_by_;  // All of it.
  bool sending_ = false;
  bool watching_ = false;
  bool overrun_ = false;  // More was sent ahead than is kept: what follows is lost.
  bool closed_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_CONNECTION_H_
