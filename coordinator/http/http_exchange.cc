#include "coordinator/http/http_exchange.h"

#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdio>
#include <utility>

#include "common/status.h"
#include "coordinator/http/http_connection.h"

namespace strata {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// A reader is behind with such a part of what may wait for it, until it is no more than the other.
constexpr uint64_t kBehindPart = 4;
constexpr uint64_t kDrainedPart = 8;

void AppendHeader(std::string_view name, std::string_view value, std::string* out) {
  out->append(name).append(": ");
  for (const char c : value) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out->push_back(c);
  }
  out->append("\r\n");
}

}  // namespace

HttpResponse ListenerError(int status, std::string_view code, std::string_view message) {
  std::string body = R"({"error":{"message":")";
  body.append(message).append(R"(","type":")");
  body.append(status == 429  ? "rate_limit_error"
              : status < 500 ? "invalid_request_error"
                             : "server_error");
  body.append(R"(","param":null,"code":")").append(code).append("\"}}");
  return {status, "application/json", std::move(body), {}};
}

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
  slow_ |= unread() > shared_->options.max_unread_bytes;
  if (slow_) {
    return Error(absl::StatusCode::kResourceExhausted, "SLOW_READER",
                 "the answer waits for a client that does not read it")
        .Limit("unread_bytes=" + std::to_string(shared_->options.max_unread_bytes))
        .Hint("read faster, or raise --max-http-unread of strata-coordinator");
  }
  Frame(piece);
  behind_ |= unread() > shared_->options.max_unread_bytes / kBehindPart;
  Wake();
  return absl::OkStatus();
}

bool HttpExchange::Behind() {
  MutexLock lock(&mutex_);
  return behind_;
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
  if (!begun) Answer(ListenerError(500, "not_answered", "the request was given up"));
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

void HttpExchange::OnDrained(std::function<void()> drained) {
  MutexLock lock(&mutex_);
  if (!gone_ && !ended_) {
    listeners_.drained = std::move(drained);
  }
}

void HttpExchange::Idle() {
  std::function<void()> idle;
  {
    MutexLock lock(&mutex_);
    if (unread() == 0) idle = listeners_.idle;
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
  std::function<void()> drained;
  {
    MutexLock lock(&mutex_);
    sending_ -= n;
    if (behind_ && unread() <= shared_->options.max_unread_bytes / kDrainedPart) {
      behind_ = false;
      drained = listeners_.drained;
    }
  }
  if (drained) drained();
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

}  // namespace strata
