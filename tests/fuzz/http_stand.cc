#include "tests/fuzz/http_stand.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <utility>

#include "common/check.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/http_connection.h"

namespace strata::fuzz {
namespace {

// Of one exchange on top of its pieces: the head, sizes of chunks, and an error's event.
constexpr size_t kFraming = 4096;

// What was taken of streams' pieces.
struct Taken {
  size_t bytes = 0;
  size_t largest = 0;  // Piece.
};

// Counts what of a stream is on its way.
class CountingResponder : public ForwardingResponder {
 public:
  CountingResponder(std::shared_ptr<HttpResponder> to, std::shared_ptr<Taken> taken)
      : ForwardingResponder(std::move(to)), taken_(std::move(taken)) {}

  absl::Status Write(std::string_view piece) override {
    absl::Status status = ForwardingResponder::Write(piece);
    if (status.ok()) {
      taken_->bytes += piece.size();
      taken_->largest = std::max(taken_->largest, piece.size());
    }
    return status;
  }

 private:
  const std::shared_ptr<Taken> taken_;
};

}  // namespace

// ---- A client.

void HttpClient::Send(std::string_view bytes) {
  if (open()) (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void HttpClient::EndSending() {
  if (open()) shutdown(fd_, SHUT_WR);
}

void HttpClient::Close() {
  if (open()) close(std::exchange(fd_, -1));
}

void HttpClient::Read(size_t most) {
  char piece[4096];
  while (open() && !ended_ && most > 0) {
    const ssize_t n = recv(fd_, piece, std::min(most, sizeof(piece)), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    }
    ended_ = n <= 0;
    if (n > 0) received_.append(piece, static_cast<size_t>(n));
    most -= std::min(most, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
}

// ---- The server.

class HttpStand::Server {
 public:
  Server(const HttpOptions& options, FakeHttpBackend* backend)
      : api_(backend, {.web = {.loopback = true, .hosts = {"x"}},
                       .run =
                           [](const std::function<void()>& call) {
                             call();
                             return absl::OkStatus();
                           }}),
        shared_(std::make_shared<HttpShared>(
            Checked(options, &api_),
            [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
              methods_.push_back(request.method);
              // Of the only client that there is where it matters.
              api_.Serve(std::move(request),
                         std::make_shared<CountingResponder>(std::move(responder), taken_));
            })),
        work_(shared_->io.get_executor()) {}

  ~Server() {
    for (int i = 0; i < 1000 && (!shared_->connections.empty() || shared_.use_count() > 1); ++i) {
      Poll();
    }
    STRATA_CHECK(shared_->connections.empty());
    STRATA_CHECK(shared_.use_count() == 1);
  }

  void Accept(int fd) {
    boost::asio::ip::tcp::socket socket(shared_->io);
    socket.assign(boost::asio::ip::tcp::v4(), fd);
    std::make_shared<HttpConnection>(shared_, std::move(socket))->Run();
  }

  void Poll() { shared_->io.poll(); }

  static HttpOptions Checked(HttpOptions options, const HttpApi* api) {
    options.check_head = [api](const HttpRequest& head) { return api->CheckHead(head); };
    return options;
  }
  size_t taken() const { return taken_->bytes; }
  // That may wait for one client: up to the limit, and the piece that passes it.
  size_t most_unread() const { return shared_->options.max_unread_bytes + taken_->largest; }
  const std::vector<std::string>& methods() const { return methods_; }

 private:
  HttpApi api_;
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();
  std::vector<std::string> methods_;
  const std::shared_ptr<HttpShared> shared_;
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
};

HttpStand::HttpStand(const HttpOptions& options)
    : server_(std::make_unique<Server>(options, &backend_)) {}

HttpStand::~HttpStand() {
  for (const auto& client : clients_) {
    client->Close();
  }
  Poll();
  backend_.EndCancelled();
  STRATA_CHECK(backend_.Live().empty());
  server_.reset();
  STRATA_CHECK(backend_.Forgotten());
}

HttpClient& HttpStand::Connect() {
  int ends[2];
  STRATA_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const int bytes = kSocketBytes / 2;  // The kernel doubles it.
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  server_->Accept(ends[0]);
  clients_.push_back(std::make_unique<HttpClient>(ends[1]));
  return *clients_.back();
}

void HttpStand::Poll() {
  server_->Poll();
  backend_.EndCancelled();
  server_->Poll();
  size_t received = 0;
  for (const auto& client : clients_) {
    received += client->received().size();
  }
  const size_t streams = std::max<size_t>(1, server_->methods().size());
  STRATA_CHECK(server_->taken() <= received + streams * (server_->most_unread() + kFraming) +
                                       clients_.size() * 2 * kSocketBytes);
}

const std::vector<std::string>& HttpStand::methods() const { return server_->methods(); }

}  // namespace strata::fuzz
