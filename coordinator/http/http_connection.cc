// Beast is in this translation unit and in http_server.cc alone.
#include "coordinator/http/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdio>
#include <utility>

#include "common/status.h"

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

void AppendHeader(std::string_view name, std::string_view value, std::string* out) {
  out->append(name).append(": ");
  for (const char c : value) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out->push_back(c);
  }
  out->append("\r\n");
}

bool SameName(std::string_view a, std::string_view b) {
  return beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

// All but the body.
HttpRequest HeadOf(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  request.query = question == std::string::npos ? "" : target.substr(question + 1);
  for (const auto& field : message) {
    request.headers.emplace_back(field.name_string(), field.value());
  }
  return request;
}

// An exchange as its user holds it.
class Responder : public HttpResponder {
 public:
  explicit Responder(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~Responder() override { exchange_->Abandon(); }

  void Answer(HttpResponse response) override { exchange_->Answer(response); }
  void Begin(HttpResponse head) override { exchange_->Begin(head); }
  absl::Status Write(std::string_view piece) override { return exchange_->Write(piece); }
  void End(std::string_view piece) override { exchange_->End(piece); }
  void OnGone(std::function<void()> gone) override { exchange_->OnGone(std::move(gone)); }
  void OnIdle(std::function<void()> idle) override { exchange_->OnIdle(std::move(idle)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

HttpResponse ErrorResponse(int status, std::string_view code, std::string_view message) {
  // Texts of ours: nothing in them needs an escape.
  std::string body = R"({"error":{"message":")";
  body.append(message).append(R"(","type":")");
  body.append(status == 429  ? "rate_limit_error"
              : status < 500 ? "invalid_request_error"
                             : "server_error");
  body.append(R"(","param":null,"code":")").append(code).append("\"}}");
  return {status, "application/json", std::move(body), {}};
}

}  // namespace

const std::string* HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (SameName(key, name)) {
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
      return std::string(one.substr(name.size() + 1));
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

// ---- An answer.

void HttpExchange::Head(const HttpResponse& response, std::optional<size_t> length) {
  begun_ = true;
  close_ = !keep_alive_ || (!length.has_value() && !chunked_);
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  waiting_ = "HTTP/1.1 " + std::to_string(response.status) + " ";
  waiting_.append(reason.data(), reason.size()).append("\r\n");
  AppendHeader("Content-Type", response.content_type, &waiting_);
  if (length.has_value()) {
    AppendHeader("Content-Length", std::to_string(*length), &waiting_);
  } else if (chunked_) {
    AppendHeader("Transfer-Encoding", "chunked", &waiting_);
  }
  AppendHeader("Connection", close_ ? "close" : "keep-alive", &waiting_);
  for (const auto& [name, value] : response.headers) {
    AppendHeader(name, value, &waiting_);
  }
  waiting_ += "\r\n";
}

void HttpExchange::Answer(const HttpResponse& response) {
  Listeners over;
  MutexLock lock(&mutex_);
  over = std::exchange(listeners_, {});
  Head(response, response.body.size());
  if (!head_only_) waiting_ += response.body;
  held_ = response.held;
  ended_ = true;
  Wake();
}

void HttpExchange::Begin(const HttpResponse& head) {
  MutexLock lock(&mutex_);
  Head(head, std::nullopt);
  Frame(head.body);
  Wake();
}

void HttpExchange::Frame(std::string_view piece) {
  if (piece.empty() || head_only_) {
    return;
  }
  if (!chunked_) {
    waiting_ += piece;
    return;
  }
  char size[24];
  const int n = std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
  waiting_.append(size, static_cast<size_t>(n)).append(piece).append("\r\n");
}

absl::Status HttpExchange::Write(std::string_view piece) {
  MutexLock lock(&mutex_);
  if (gone_) {
    return Error(absl::StatusCode::kCancelled, "CLIENT_GONE", "the client closed its connection");
  }
  // By what waits before it: how large the piece is, is not its reader's fault.
  slow_ |= waiting_.size() + sending_ > shared_->options.max_unread_bytes;
  if (slow_) {
    return Error(absl::StatusCode::kResourceExhausted, "SLOW_READER",
                 "the answer waits for a client that does not read it")
        .Limit("unread_bytes=" + std::to_string(shared_->options.max_unread_bytes))
        .Hint("read faster, or raise --max-http-unread of strata-coordinator");
  }
  Frame(piece);
  Wake();
  return absl::OkStatus();
}

void HttpExchange::End(std::string_view piece) {
  Listeners over;
  MutexLock lock(&mutex_);
  over = std::exchange(listeners_, {});
  Frame(piece);
  if (chunked_ && !head_only_) waiting_ += "0\r\n\r\n";
  ended_ = true;
  Wake();
}

void HttpExchange::Abandon() {
  bool begun = false;
  {
    Listeners over;
    MutexLock lock(&mutex_);
    if (ended_) {
      return;
    }
    over = std::exchange(listeners_, {});
    begun = begun_;
    if (begun) {
      ended_ = true;  // Without the last chunk: the client sees that the stream broke off.
      close_ = true;
      Wake();
    }
  }
  if (!begun) Answer(ErrorResponse(500, "not_answered", "the request was given up"));
}

void HttpExchange::OnGone(std::function<void()> gone) {
  MutexLock lock(&mutex_);
  if (gone_) {
    asio::post(shared_->io, std::move(gone));
  } else if (!ended_) {
    listeners_.gone = std::move(gone);
  }
}

void HttpExchange::OnIdle(std::function<void()> idle) {
  MutexLock lock(&mutex_);
  if (!gone_ && !ended_) {
    listeners_.idle = std::move(idle);
  }
}

void HttpExchange::Idle() {
  std::function<void()> idle;
  {
    MutexLock lock(&mutex_);
    if (waiting_.empty() && sending_ == 0) idle = listeners_.idle;
  }
  if (idle) idle();
}

void HttpExchange::Wake() {
  if (woken_ || gone_) {
    return;
  }
  woken_ = true;
  asio::post(shared_->io, [connection = connection_, exchange = this] {
    // The connection holds the exchange while it is at it.
    if (const auto live = connection.lock()) live->Flush(exchange);
  });
}

HttpExchange::Part HttpExchange::Take() {
  MutexLock lock(&mutex_);
  woken_ = false;
  Part part;
  part.bytes = std::exchange(waiting_, {});
  part.last = ended_;
  part.close = ended_ && close_;
  sending_ += part.bytes.size();
  return part;
}

void HttpExchange::Sent(size_t n) {
  MutexLock lock(&mutex_);
  sending_ -= n;
}

void HttpExchange::CloseAfter() {
  MutexLock lock(&mutex_);
  keep_alive_ = false;
  close_ = true;
}

void HttpExchange::ClientGone() {
  Listeners over;
  {
    MutexLock lock(&mutex_);
    if (gone_) {
      return;
    }
    gone_ = true;
    waiting_.clear();
    over = std::exchange(listeners_, {});
  }
  if (over.gone) over.gone();
}

// ---- A connection.

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, tcp::socket socket)
    : shared_(std::move(shared)), stream_(std::move(socket)), alive_(shared_->io) {
  Error ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  shared_->connections.insert(this);
}

HttpConnection::~HttpConnection() {
  Close();
  shared_->connections.erase(this);
}

void HttpConnection::Run() { ReadHeader(); }

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
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](const Error& error, size_t) { self->OnHeader(error); });
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
  } else if (error && error != http::error::end_of_stream &&
             error.category() == http::make_error_code(http::error::bad_method).category()) {
    Refuse(400, "bad_http", "this is no HTTP request: " + error.message());
  } else if (error) {
    Close();
  } else if (auto refusal = CheckHead(); refusal.has_value()) {
    Refuse(*refusal);
  } else if (auto full = HoldBody(); full.has_value()) {
    Refuse(*full);
  } else if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                      [self = shared_from_this()](const Error& failed, size_t) {
                        if (!self->closed_) failed ? self->Close() : self->ReadBody();
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
  held_ = std::make_shared<HttpMemory::Part>(options.memory);
  if (held_->Resize(bytes).ok()) {
    return std::nullopt;
  }
  held_.reset();
  HttpResponse full = ErrorResponse(429, "http_memory_full",
                                    "bodies and answers of other HTTP requests hold all that "
                                    "--max-http-memory of strata-coordinator lets them: send it "
                                    "again later");
  full.headers.emplace_back("Retry-After", "1");
  return full;
}

void HttpConnection::ReadBody() {
  stream_.expires_after(shared_->options.body_timeout);
  http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](const Error& error, size_t) { self->OnBody(error); });
}

void HttpConnection::OnBody(const Error& error) {
  if (closed_) {
    return;
  }
  if (error == http::error::body_limit) {
    RefuseBody();
  } else if (error) {
    Close();
  } else {
    Dispatch();
  }
}

std::optional<HttpResponse> HttpConnection::CheckHead() const {
  const auto& check = shared_->options.check_head;
  return check == nullptr ? std::nullopt : check(HeadOf(parser_->get()));
}

void HttpConnection::Dispatch() {
  auto message = parser_->release();
  parser_.reset();
  HttpRequest request = HeadOf(message);
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
  exchange_ = std::make_shared<HttpExchange>(shared_, weak_from_this(), false, true, false);
  busy_ = shared_from_this();
  exchange_->Answer(response);
}

void HttpConnection::Refuse(int status, std::string_view code, const std::string& message) {
  Refuse(ErrorResponse(status, code, message));
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
  stream_.async_write_some(
      asio::buffer(part_.bytes.data() + sent_, part_.bytes.size() - sent_),
      [self = shared_from_this()](const Error& error, size_t n) { self->OnSent(error, n); });
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
  if (close) {
    Error ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLinger);
    Linger();
  } else {
    ReadHeader();
  }
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
