// The answer to one HTTP request, between who gives it and the connection that it is written to.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_EXCHANGE_H_
#define STRATA_COORDINATOR_HTTP_HTTP_EXCHANGE_H_

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/mutex.h"
#include "coordinator/http/answer_framing.h"
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
  // `head_only`, `chunked`, `keep_alive`: as AnswerFraming has them.
  HttpExchange(std::shared_ptr<HttpShared> shared, std::weak_ptr<HttpConnection> connection,
               bool head_only, bool chunked, bool keep_alive)
      : shared_(std::move(shared)),
        connection_(std::move(connection)),
        framing_(head_only, chunked, keep_alive) {}

  // HttpResponder's.
  void Answer(const HttpResponse& response);
  void Begin(const HttpResponse& head);
  absl::Status Write(std::string_view piece);
  bool Behind();
  void End(std::string_view piece);
  void OnGone(std::function<void()> gone);
  void OnIdle(std::function<void()> idle);
  void OnDrained(std::function<void()> drained);
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
    std::function<void()> drained;
  };

  size_t unread() const STRATA_REQUIRES(mutex_) { return waiting_.size() + sending_; }
  // Has the connection look for what waits.
  void Wake() STRATA_REQUIRES(mutex_);

  const std::shared_ptr<HttpShared> shared_;
  const std::weak_ptr<HttpConnection> connection_;

  Mutex mutex_;
  AnswerFraming framing_ STRATA_GUARDED_BY(mutex_);
  std::string waiting_ STRATA_GUARDED_BY(mutex_);
  size_t sending_ STRATA_GUARDED_BY(mutex_) = 0;  // Bytes taken, less those sent.
  bool woken_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  bool behind_ STRATA_GUARDED_BY(mutex_) = false;
  // While behind: when it fell behind, or last took something.
  std::chrono::steady_clock::time_point took_ STRATA_GUARDED_BY(mutex_);
  bool slow_ STRATA_GUARDED_BY(mutex_) = false;
  bool gone_ STRATA_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const HttpMemory::Part> held_ STRATA_GUARDED_BY(mutex_);
  Listeners listeners_ STRATA_GUARDED_BY(mutex_);
};

// An error of the listener's own, in OpenAI's form. Nothing in the texts needs an escape.
HttpResponse ListenerError(int status, std::string_view code, std::string_view message);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_EXCHANGE_H_
