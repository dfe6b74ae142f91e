// Beast is in this translation unit, answer_framing.cc, http_exchange.cc and http_server.cc alone.
#include "coordinator/http/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/detect_ssl.hpp>
#include <chrono>
#include <utility>

#include "common/status.h"
#include "coordinator/http/http_head.h"
#include "coordinator/http/http_tls.h"

namespace strata {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

// What a client may send ahead while a request of its is answered; with more, its connection ends
// with that answer.
constexpr size_t kMaxAheadBytes = 16 * 1024;
// Between two looks whether a stream's client is to hear something.
constexpr std::chrono::milliseconds kShortestWait{1};
// How long a connection that is to be closed waits for its client to do so.
constexpr std::chrono::seconds kLinger{2};

// What is read ahead of a request's framing: lines of chunks and of what trails a body, which have
// no limit of their own.
constexpr size_t kMaxFramingBytes = 64 * 1024;

// Whether what was sent is no HTTP, and the connection is not to blame.
bool IsBadHttp(const boost::system::error_code& error) {
  return error && error != http::error::end_of_stream &&
         error.category() == http::make_error_code(http::error::bad_method).category();
}

// An exchange as its user holds it.
class Responder : public HttpResponder {
 public:
  explicit Responder(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~Responder() override { exchange_->Abandon(); }

  void Answer(HttpResponse response) override { exchange_->Answer(response); }
  void Begin(HttpResponse head) override { exchange_->Begin(head); }
  absl::Status Write(std::string_view piece) override { return exchange_->Write(piece); }
  bool Behind() override { return exchange_->Behind(); }
  void End(std::string_view piece) override { exchange_->End(piece); }
  void OnGone(std::function<void()> gone) override { exchange_->OnGone(std::move(gone)); }
  void OnIdle(std::function<void()> idle) override { exchange_->OnIdle(std::move(idle)); }
  void OnDrained(std::function<void()> drained) override {
    exchange_->OnDrained(std::move(drained));
  }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

}  // namespace

const std::string* HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (SameHeaderName(key, name)) {
      return &value;
    }
  }
  return nullptr;
}

std::string HttpRequest::Query(std::string_view name) const {
  size_t begin = 0;
  while (begin < query.size()) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string_view one = std::string_view(query).substr(begin, end - begin);
    if (one.size() > name.size() && one[name.size()] == '=' && one.substr(0, name.size()) == name) {
      return PercentDecoded(one.substr(name.size() + 1));
    }
    begin = end + 1;
  }
  return "";
}

std::chrono::nanoseconds HttpOptions::TimeToSend(uint64_t bytes) const {
  constexpr double kLongest = 1e9;  // Seconds: some thirty years.
  const double seconds =
      send_rate == 0 ? kLongest : static_cast<double>(bytes) / static_cast<double>(send_rate);
  return send_timeout +
         std::chrono::nanoseconds(static_cast<int64_t>(std::min(seconds, kLongest) * 1e9));
}

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, tcp::socket socket)
    : shared_(std::move(shared)),
      stream_(std::move(socket)),
      alive_(shared_->io),
      buffer_(std::max<size_t>(shared_->options.max_header_bytes, kMaxAheadBytes) +
              kMaxFramingBytes) {
  Error ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  shared_->connections.insert(this);
}

HttpConnection::~HttpConnection() {
  Close();
  shared_->connections.erase(this);
}

void HttpConnection::Run() { shared_->options.tls == nullptr ? ReadHeader() : Detect(); }

void HttpConnection::Detect() {
  // For all of the handshake.
  stream_.expires_after(shared_->options.timeout);
  beast::async_detect_ssl(
      stream_, buffer_,
      [self = shared_from_this()](const Error& error, bool tls) { self->OnDetected(error, tls); });
}

void HttpConnection::OnDetected(const Error& error, bool tls) {
  if (closed_) {
    return;
  }
  if (error) {
    Close();
    return;
  }
  if (!tls) {
    Refuse(400, "tls_wanted", "this port speaks HTTPS: use an address that begins with https://");
    return;
  }
  asio::ssl::context context(shared_->options.tls->context().release());
  tls_ = std::make_unique<Tls>(stream_, context);
  tls_->stream.async_handshake(asio::ssl::stream_base::server, buffer_.data(),
                               [self = shared_from_this()](const Error& failed, size_t used) {
                                 self->OnHandshake(failed, used);
                               });
}

void HttpConnection::OnHandshake(const Error& error, size_t used) {
  if (closed_) {
    return;
  }
  buffer_.consume(used);
  // What is behind a handshake is read by TLS, and not before.
  if (error || buffer_.size() > 0) {
    Close();
    return;
  }
  ReadHeader();
}

void HttpConnection::Close() {
  if (std::exchange(closed_, true)) {
    return;
  }
  const std::shared_ptr<HttpConnection> self = std::exchange(busy_, nullptr);
  Error ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->ClientGone();
}

void HttpConnection::CloseWhenIdle() {
  if (exchange_ == nullptr) Close();
}

void HttpConnection::ReadHeader() {
  if (shared_->stopping) {
    Close();
    return;
  }
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
  parser_->body_limit(shared_->options.max_body_bytes);
  stream_.expires_after(shared_->options.timeout);
  WithStream([this](auto& stream) {
    http::async_read_header(
        stream, buffer_, *parser_,
        [self = shared_from_this()](const Error& error, size_t) { self->OnHeader(error); });
  });
}

void HttpConnection::OnHeader(const Error& error) {
  if (closed_) {
    return;
  }
  if (error == http::error::header_limit) {
    Refuse(431, "header_too_large",
           "the header has more than " + std::to_string(shared_->options.max_header_bytes) +
               " bytes (--max-http-header of strata-coordinator)");
  } else if (error == http::error::body_limit) {
    RefuseBody();
  } else if (IsBadHttp(error)) {
    Refuse(400, "bad_http", "this is no HTTP request: " + error.message());
  } else if (error) {
    Close();
  } else if (auto refusal = TakeHead(); refusal.has_value()) {
    Refuse(*refusal);
  } else if (auto full = HoldBody(); full.has_value()) {
    Refuse(*full);
  } else if (head_.Header("Expect") != nullptr && parser_->get().version() >= 11) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    WithStream([this](auto& stream) {
      asio::async_write(stream, asio::buffer(kContinue.data(), kContinue.size()),
                        [self = shared_from_this()](const Error& failed, size_t) {
                          if (!self->closed_) failed ? self->Close() : self->ReadBody();
                        });
    });
  } else {
    ReadBody();
  }
}

std::optional<HttpResponse> HttpConnection::HoldBody() {
  const HttpOptions& options = shared_->options;
  const auto length = parser_->content_length();
  const uint64_t bytes = parser_->chunked() ? options.max_body_bytes : length.value_or(0);
  if (options.memory == nullptr || bytes == 0) {
    return std::nullopt;
  }
  held_ = std::make_shared<HttpMemory::Part>(
      options.memory, options.owner_of == nullptr ? "" : options.owner_of(head_));
  const absl::Status room = held_->Resize(bytes);
  if (room.ok()) {
    return std::nullopt;
  }
  held_.reset();
  HttpResponse full = ListenerError(429, "http_memory_full", Describe(room));
  full.headers.emplace_back("Retry-After", "1");
  return full;
}

void HttpConnection::ReadBody() {
  stream_.expires_after(shared_->options.body_timeout);
  WithStream([this](auto& stream) {
    http::async_read(
        stream, buffer_, *parser_,
        [self = shared_from_this()](const Error& error, size_t) { self->OnBody(error); });
  });
}

void HttpConnection::OnBody(const Error& error) {
  if (closed_) {
    return;
  }
  if (error == http::error::body_limit) {
    RefuseBody();
  } else if (IsBadHttp(error) && error != http::error::partial_message) {
    Refuse(400, "bad_body", "the body is not framed as HTTP has it: " + error.message());
  } else if (error) {
    Close();
  } else {
    Dispatch();
  }
}

std::optional<HttpResponse> HttpConnection::TakeHead() {
  const auto& message = parser_->get();
  head_ = {};
  head_.method = std::string(message.method_string());
  for (const auto& field : message) {
    head_.headers.emplace_back(field.name_string(), field.value());
  }
  const std::string_view target(message.target().data(), message.target().size());
  auto problem = CheckProtocol(static_cast<int>(message.version()), head_.headers);
  if (!problem.has_value()) problem = ReadTarget(target, &head_);
  if (problem.has_value()) {
    HttpResponse refusal = ListenerError(problem->status, problem->code, problem->message);
    refusal.headers = std::move(problem->headers);
    return refusal;
  }
  const auto& check = shared_->options.check_head;
  return check == nullptr ? std::nullopt : check(head_);
}

void HttpConnection::Dispatch() {
  auto message = parser_->release();
  parser_.reset();
  HttpRequest request = std::exchange(head_, {});
  request.body = std::move(message.body());
  if (held_ != nullptr) (void)held_->Resize(request.body.size());  // To no more than it has.
  request.held = std::exchange(held_, nullptr);
  stream_.expires_never();
  exchange_ = std::make_shared<HttpExchange>(
      shared_, weak_from_this(), message.method() == http::verb::head, message.version() >= 11,
      message.keep_alive() && !shared_->stopping);
  busy_ = shared_from_this();
  auto responder = std::make_shared<Responder>(exchange_);
  Watch();
  last_sent_ = std::chrono::steady_clock::now();
  if (const auto after = shared_->options.keepalive; after.count() > 0) KeepAlive(after);
  shared_->handler(std::move(request), std::move(responder));
}

void HttpConnection::Refuse(const HttpResponse& response) {
  stream_.expires_never();
  const bool head_only = parser_.has_value() && parser_->get().method() == http::verb::head;
  exchange_ = std::make_shared<HttpExchange>(shared_, weak_from_this(), head_only, true, false);
  busy_ = shared_from_this();
  exchange_->Answer(response);
}

void HttpConnection::Refuse(int status, std::string_view code, const std::string& message) {
  Refuse(ListenerError(status, code, message));
}

void HttpConnection::RefuseBody() {
  Refuse(413, "body_too_large",
         "the body has more than " + std::to_string(shared_->options.max_body_bytes) +
             " bytes (--max-http-body of strata-coordinator)");
}

void HttpConnection::Watch() {
  if (std::exchange(watching_, true)) {
    return;
  }
  if (tls_ != nullptr) {
    tls_->stream.async_read_some(
        asio::buffer(tls_->ahead),
        [self = shared_from_this()](const Error& error, size_t n) { self->OnReadAhead(error, n); });
    return;
  }
  stream_.socket().async_wait(
      tcp::socket::wait_read,
      [self = shared_from_this()](const Error& error) { self->OnReadable(error); });
}

void HttpConnection::OnReadable(const Error& error) {
  watching_ = false;
  if (closed_ || error || exchange_ == nullptr) {
    return;
  }
  Error failed;
  const size_t n = stream_.socket().read_some(buffer_.prepare(4096), failed);
  if (failed && failed != asio::error::would_block && failed != asio::error::try_again) {
    Close();
    return;
  }
  // Its end is not seen before what was sent ahead of it is read. There is no room for all, and a
  // request without its end is none.
  if (!overrun_) buffer_.commit(failed ? 0 : n);
  if (buffer_.size() > kMaxAheadBytes && !std::exchange(overrun_, true)) exchange_->CloseAfter();
  Watch();
}

void HttpConnection::OnReadAhead(const Error& error, size_t n) {
  watching_ = false;
  if (closed_) {
    return;
  }
  if (!overrun_ && n > 0) {
    asio::buffer_copy(buffer_.prepare(n), asio::buffer(tls_->ahead.data(), n));
    buffer_.commit(n);
  }
  if (const auto next = std::exchange(after_watch_, nullptr)) {
    (this->*next)();
  } else if (error) {
    Close();
  } else {
    if (buffer_.size() > kMaxAheadBytes && !std::exchange(overrun_, true)) exchange_->CloseAfter();
    Watch();
  }
}

void HttpConnection::Flush(const HttpExchange* exchange) {
  if (!closed_ && exchange_.get() == exchange && !sending_) {
    Send();
  }
}

void HttpConnection::Send() {
  part_ = exchange_->Take();
  sent_ = 0;
  if (!part_.bytes.empty()) {
    sending_ = true;
    send_by_ = std::chrono::steady_clock::now() + shared_->options.TimeToSend(part_.bytes.size());
    SendRest();
  } else if (part_.last) {
    AnswerSent();
  }
}

void HttpConnection::SendRest() {
  // Not so long again for each byte.
  stream_.expires_at(
      std::min(std::chrono::steady_clock::now() + shared_->options.send_timeout, send_by_));
  WithStream([this](auto& stream) {
    stream.async_write_some(
        asio::buffer(part_.bytes.data() + sent_, part_.bytes.size() - sent_),
        [self = shared_from_this()](const Error& error, size_t n) { self->OnSent(error, n); });
  });
}

void HttpConnection::OnSent(const Error& error, size_t n) {
  if (closed_) {
    return;
  }
  if (error) {
    Close();
    return;
  }
  sent_ += n;
  last_sent_ = std::chrono::steady_clock::now();
  exchange_->Sent(n);
  if (sent_ < part_.bytes.size()) {
    SendRest();
    return;
  }
  sending_ = false;
  stream_.expires_never();
  if (part_.last) {
    AnswerSent();
  } else {
    Send();
  }
}

void HttpConnection::AnswerSent() {
  const std::shared_ptr<HttpConnection> self = std::exchange(busy_, nullptr);
  const bool close = part_.close || overrun_ || shared_->stopping;
  part_ = {};
  exchange_.reset();
  alive_.cancel();
  const auto next = close ? &HttpConnection::EndSending : &HttpConnection::ReadHeader;
  if (tls_ != nullptr && watching_) {
    // One reads at a time. What the watch has read by then is kept.
    after_watch_ = next;
    stream_.cancel();
    return;
  }
  (this->*next)();
}

void HttpConnection::EndSending() {
  stream_.expires_after(kLinger);
  const auto linger = [self = shared_from_this()](const Error&) {
    if (self->closed_) {
      return;
    }
    Error ignored;
    self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    self->Linger();
  };
  // With TLS its end is said within it first; whether the client says so too does not matter.
  tls_ != nullptr ? tls_->stream.async_shutdown(linger) : linger({});
}

void HttpConnection::KeepAlive(std::chrono::nanoseconds after) {
  alive_.expires_after(std::max<std::chrono::nanoseconds>(after, kShortestWait));
  alive_.async_wait([weak = weak_from_this()](const Error& cancelled) {
    if (const auto self = weak.lock(); self != nullptr && !cancelled) self->OnKeepAlive();
  });
}

void HttpConnection::OnKeepAlive() {
  if (closed_ || exchange_ == nullptr) {
    return;
  }
  const std::chrono::nanoseconds after = shared_->options.keepalive;
  const auto silent = std::chrono::steady_clock::now() - last_sent_;
  if (silent < after) {
    KeepAlive(after - silent);
    return;
  }
  // What its user then says may end the exchange, and the connection.
  const std::shared_ptr<HttpExchange> exchange = exchange_;
  KeepAlive(after);
  exchange->Idle();
}

void HttpConnection::Linger() {
  buffer_.consume(buffer_.size());
  stream_.async_read_some(buffer_.prepare(kMaxAheadBytes),
                          [self = shared_from_this()](const Error& error, size_t) {
                            if (!self->closed_) error ? self->Close() : self->Linger();
                          });
}

}  // namespace strata
