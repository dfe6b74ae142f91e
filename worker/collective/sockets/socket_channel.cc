#include "worker/collective/sockets/socket_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status Gone(const std::string& why) {
  return Error(absl::StatusCode::kUnavailable, "RANK_GONE",
               absl::StrCat("its connection ended: ", why));
}

class SocketChannel : public RankChannel {
 public:
  explicit SocketChannel(int socket) : socket_(socket) {}
  ~SocketChannel() override { close(socket_); }
  SocketChannel(const SocketChannel&) = delete;
  SocketChannel& operator=(const SocketChannel&) = delete;

  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    return Moved(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    const ssize_t moved = recv(socket_, out.data(), out.size(), MSG_DONTWAIT);
    if (moved == 0 && !out.empty()) {
      return Gone("the other end sends nothing more");
    }
    return Moved(moved);
  }
  void EndSending() override { shutdown(socket_, SHUT_WR); }

 private:
  static absl::StatusOr<size_t> Moved(ssize_t moved) {
    if (moved >= 0) {
      return static_cast<size_t>(moved);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
      return size_t{0};
    }
    return Gone(std::strerror(errno));
  }

  const int socket_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankChannel>> MakeSocketChannel(int socket) {
  auto channel = std::make_unique<SocketChannel>(socket);
  // A frame must not wait for an answer to the one before it.
  const int on = 1;
  if (setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 && errno != EOPNOTSUPP &&
      errno != ENOPROTOOPT) {
    return Gone(std::strerror(errno));
  }
  return channel;
}

}  // namespace strata
