#include "coordinator/http/http_exchange.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "common/status.h"
#include "coordinator/http/http_connection.h"

namespace strata {
namespace {

namespace asio = boost::asio;

// A reader is behind with such a part of what may wait for it, until it is no more than the other.
constexpr uint64_t kBehindPart = 4;
constexpr uint64_t kDrainedPart = 8;

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

void HttpExchange::Answer(const HttpResponse& response) {
  Listeners over;
  MutexLock lock(&mutex_);
  over = std::exchange(listeners_, {});
  framing_.Whole(response, &waiting_);
  held_ = response.held;
  ended_ = true;
  Wake();
}

void HttpExchange::Begin(const HttpResponse& head) {
  MutexLock lock(&mutex_);
  framing_.Begin(head, &waiting_);
  Wake();
}

absl::Status HttpExchange::Write(std::string_view piece) {
  MutexLock lock(&mutex_);
  if (gone_) {
    return Error(absl::StatusCode::kCancelled, "CLIENT_GONE", "the client closed its connection");
  }
  // By what waits before it: how large the piece is, is not its reader's fault. Nor is it when much
  // comes at once.
  slow_ |= unread() > shared_->options.max_unread_bytes &&
           std::chrono::steady_clock::now() - took_ >= shared_->options.unread_patience;
  if (slow_) {
    return Error(absl::StatusCode::kResourceExhausted, "SLOW_READER",
                 "the answer waits for a client that does not read it")
        .Limit("unread_bytes=" + std::to_string(shared_->options.max_unread_bytes))
        .Hint("read faster, or raise --max-http-unread of strata-coordinator");
  }
  framing_.Piece(piece, &waiting_);
  if (!behind_ && unread() > shared_->options.max_unread_bytes / kBehindPart) {
    behind_ = true;
    took_ = std::chrono::steady_clock::now();
  }
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
  framing_.End(piece, &waiting_);
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
    begun = framing_.begun();
    if (begun) {
      ended_ = true;  // Without the last chunk: the client sees that the stream broke off.
      framing_.Close();
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
  part.close = ended_ && framing_.closes();
  sending_ += part.bytes.size();
  return part;
}

void HttpExchange::Sent(size_t n) {
  std::function<void()> drained;
  {
    MutexLock lock(&mutex_);
    sending_ -= n;
    if (behind_) took_ = std::chrono::steady_clock::now();
    if (behind_ && unread() <= shared_->options.max_unread_bytes / kDrainedPart) {
      behind_ = false;
      drained = listeners_.drained;
    }
  }
  if (drained) drained();
}

void HttpExchange::CloseAfter() {
  MutexLock lock(&mutex_);
  framing_.Close();
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
