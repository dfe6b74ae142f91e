// The HTTP listener: requests in, answers out, whole or as streams. It knows no route; docs/API.md
// says what is laid on it.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_SERVER_H_
#define STRATA_COORDINATOR_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/http/http_memory.h"

namespace strata {

class HttpTls;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // Without query; percent signs stand for nothing else but "%2F".
  std::string query;   // Without '?'.
  std::string body;
  HttpHeaders headers;
  std::shared_ptr<const HttpMemory::Part> held = nullptr;  // For its body.

  // The first header of this name, in whatever case; null if there is none.
  const std::string* Header(std::string_view name) const;
  // The value of the first `name=value` of the query, without escapes; "" if there is none.
  std::string Query(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // Others than type and length. Control characters are left out.
  // Let go of when it was sent.
  std::shared_ptr<const HttpMemory::Part> held = nullptr;
};

struct HttpOptions {
  uint64_t max_connections = 4096;  // One more is answered 503 and closed.
  uint64_t max_header_bytes = 16 * 1024;
  uint64_t max_body_bytes = uint64_t{4} << 20;
  // Of one stream's pieces, waiting for a client that does not read. Where a quarter of it waits,
  // what is said should wait too, until no more than an eighth does. What was under way is taken
  // beyond the limit; once the client has taken nothing for `unread_patience` since it fell behind,
  // nothing is, and the client is cut off.
  uint64_t max_unread_bytes = uint64_t{1} << 20;
  std::chrono::nanoseconds unread_patience = std::chrono::seconds(5);
  // The certificate to show; null: the server speaks plain text. With it, who begins with plain
  // text is told so.
  std::shared_ptr<HttpTls> tls = nullptr;
  // A connection between requests, one that sends a request's header, and one whose TLS handshake
  // is under way.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds body_timeout = std::chrono::seconds(120);  // For a whole body.
  // A client that takes nothing of its answer for this long is cut off.
  std::chrono::nanoseconds send_timeout = std::chrono::seconds(120);
  // And one that takes what waits for it more slowly than this, in bytes a second, once so long has
  // passed. 0: however slowly.
  uint64_t send_rate = 64 * 1024;
  // Without anything said for this long, who writes a stream is asked for a sign of life. 0: never.
  std::chrono::nanoseconds keepalive = std::chrono::seconds(10);
  // Of which bodies hold their part, by their length or what they may have, from before they are
  // read until their requests are on their way. Null: they do not count.
  std::shared_ptr<HttpMemory> memory = nullptr;
  // Whose a request's body is, of what check_head lets pass, on the server's thread. Null:
  // nobody's.
  std::function<std::string(const HttpRequest& head)> owner_of = nullptr;
  // Asked about each request before its body is read, on the server's thread: what it is refused
  // with, if it is. The connection ends with that. Null: nothing is refused.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head = nullptr;

  // The most that `bytes`, which wait together, may take.
  std::chrono::nanoseconds TimeToSend(uint64_t bytes) const;
};

// The answer to one request: either Answer, or Begin, any number of Write, End. Any thread, one
// call at a time; nothing waits. One that is destroyed before its end answers 500, or breaks off
// the stream.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  virtual void Answer(HttpResponse response) = 0;

  // The head of a stream; `head.body` is its first piece.
  virtual void Begin(HttpResponse head) = 0;
  // Why a stream takes no more, once it does not: CANCELLED (CLIENT_GONE), or RESOURCE_EXHAUSTED
  // (SLOW_READER); what was written before is still sent to a slow reader.
  virtual absl::Status Write(std::string_view piece) = 0;
  // Whether so much waits for the client that there should be no more until OnDrained's call.
  virtual bool Behind() = 0;
  // The last piece, which is taken from any.
  virtual void End(std::string_view piece) = 0;

  // Calls `gone`, on the server's thread, when the client goes away or is cut off before the end;
  // soon if it has already. Once, before the end; `gone` must not wait. A client that closes its
  // sending side has gone away.
  virtual void OnGone(std::function<void()> gone) = 0;
  // Calls `idle`, on the server's thread, whenever nothing was said for HttpOptions::keepalive and
  // all that was has been sent, until the end. Once; `idle` must not wait.
  virtual void OnIdle(std::function<void()> idle) = 0;
  // Calls `drained`, on the server's thread, whenever Behind() is over, until the end. Once, before
  // the first Write; `drained` must not wait.
  virtual void OnDrained(std::function<void()> drained) = 0;
};

// Hands everything on to another responder; who derives from it changes a part of that.
class ForwardingResponder : public HttpResponder {
 public:
  explicit ForwardingResponder(std::shared_ptr<HttpResponder> to) : to_(std::move(to)) {}

  void Answer(HttpResponse response) override { to_->Answer(std::move(response)); }
  void Begin(HttpResponse head) override { to_->Begin(std::move(head)); }
  absl::Status Write(std::string_view piece) override { return to_->Write(piece); }
  bool Behind() override { return to_->Behind(); }
  void End(std::string_view piece) override { to_->End(piece); }
  void OnGone(std::function<void()> gone) override { to_->OnGone(std::move(gone)); }
  void OnIdle(std::function<void()> idle) override { to_->OnIdle(std::move(idle)); }
  void OnDrained(std::function<void()> drained) override { to_->OnDrained(std::move(drained)); }

 private:
  const std::shared_ptr<HttpResponder> to_;
};

class HttpServer {
 public:
  // Takes one request; called on the server's thread, so it must not wait.
  using Handler =
      std::function<void(HttpRequest request, std::shared_ptr<HttpResponder> responder)>;

  // Listens on "host:port" (port 0 picks one) and serves until destroyed; responders may outlive
  // it. UNAVAILABLE names the address when it cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           const HttpOptions& options,
                                                           Handler handler);
  virtual ~HttpServer() = default;
  virtual std::string address() const = 0;  // As bound.
  // Runs `task` on the server's thread, soon. Any thread.
  virtual void Post(std::function<void()> task) = 0;
  // Takes no new connections, and waits up to `timeout` until what is being answered is sent.
  virtual void Shutdown(std::chrono::nanoseconds timeout) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_SERVER_H_
