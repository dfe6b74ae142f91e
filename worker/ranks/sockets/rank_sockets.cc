#include "worker/ranks/sockets/rank_sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/collective/collective.h"
#include "worker/collective/sockets/socket_channel.h"
#include "worker/ranks/sockets/rank_tls.h"

namespace strata {
namespace {

// How often a wait looks whether it is to end.
constexpr milliseconds kLook(20);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                             &hints, &found);
  if (rc != 0) {
    return absl::UnavailableError(gai_strerror(rc));
  }
  return Addresses(found, &freeaddrinfo);
}

std::string Text(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

// A socket that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Neither a child of this process has it, nor does a call of it wait.
bool Prepare(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
         fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

// Connections that were taken at the port do not keep others from listening there.
bool MayShare(int fd) {
  const int yes = 1;
  return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0;
}

absl::Status Unreachable(const std::string& address, const std::string& why) {
  return Error(absl::StatusCode::kUnavailable, "RANK_UNREACHABLE",
               absl::StrCat("the rank at ", address, " is not reached: ", why))
      .Hint(
          "let the workers of a stage's ranks connect to each other: at any port, or at those of "
          "their --ranks-listen");
}

// A connection that has not said all of its hello.
struct Pending {
  int fd = -1;  // The channel's, to wait for.
  std::unique_ptr<RankChannel> channel;
  RankTls* tls = nullptr;  // The channel, while it is at its handshake.
  TimePoint until;
  std::array<uint8_t, kRankHelloBytes> bytes = {};
  size_t got = 0;
};

absl::Status Silent() {
  return Error(absl::StatusCode::kDeadlineExceeded, kRankHelloRefused,
               "a connection to a rank said no hello in time")
      .Limit(absl::StrCat("hello_ms=", kRankHelloTimeout.count()));
}

// Takes over the socket.
absl::StatusOr<Pending> NewPending(Socket socket, const RankSecret& secret, RankWire wire,
                                   TimePoint until) {
  Pending pending = {.fd = socket.fd(), .until = until};
  ASSIGN_OR_RETURN(pending.channel, MakeSocketChannel(socket.Release()));
  if (wire == RankWire::kTls) {
    auto tls =
        std::make_unique<RankTls>(std::move(pending.channel), secret, RankTls::Side::kIsDialled);
    pending.tls = tls.get();
    pending.channel = std::move(tls);
  }
  return pending;
}

// Ok while more is to come; then `*whole`.
absl::Status Read(Pending* pending, bool* whole) {
  if (pending->tls != nullptr) {
    ASSIGN_OR_RETURN(const bool over, pending->tls->Handshake());
    if (!over) {
      return absl::OkStatus();
    }
    pending->tls = nullptr;
  }
  const absl::StatusOr<size_t> got =
      pending->channel->Receive(std::span(pending->bytes).subspan(pending->got));
  if (!got.ok()) {
    return Error(absl::StatusCode::kInvalidArgument, kRankHelloRefused,
                 "a connection to a rank ended before its hello did");
  }
  pending->got += *got;
  *whole = pending->got == pending->bytes.size();
  return absl::OkStatus();
}

// Of the connection, once its hello is whole: whether it is taken.
absl::Status Admit(Pending* pending, ExpectedRanks* expected) {
  ASSIGN_OR_RETURN(const RankHello hello, DecodeRankHello(pending->bytes));
  return expected->Take(hello, std::move(pending->channel));
}

// How long somebody waits for another rank.
struct Patience {
  const Clock& clock;
  TimePoint deadline;
  const std::function<bool()>& stopped;

  absl::Status Check() const {
    if (stopped && stopped()) {
      return absl::CancelledError("the stage is no longer wanted");
    }
    return clock.Now() < deadline ? absl::OkStatus()
                                  : absl::DeadlineExceededError("it did not answer in time");
  }
};

absl::Status Connect(int fd, const addrinfo& to, const Patience& patience) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINPROGRESS) {
    return absl::UnavailableError(std::strerror(errno));
  }
  pollfd waiting{.fd = fd, .events = POLLOUT, .revents = 0};
  while (poll(&waiting, 1, static_cast<int>(kLook.count())) <= 0) {
    RETURN_IF_ERROR(patience.Check());
  }
  int error = ETIMEDOUT;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : absl::UnavailableError(std::strerror(error));
}

// Of a socket that is connected.
absl::StatusOr<std::unique_ptr<RankChannel>> SayHello(Socket socket, const RankHello& hello,
                                                      RankWire wire, const Patience& patience) {
  const int fd = socket.fd();
  ASSIGN_OR_RETURN(std::unique_ptr<RankChannel> channel, MakeSocketChannel(socket.Release()));
  RankTls* tls = nullptr;
  if (wire == RankWire::kTls) {
    auto made = std::make_unique<RankTls>(std::move(channel), hello.secret, RankTls::Side::kDials);
    tls = made.get();
    channel = std::move(made);
  }
  std::array<uint8_t, kRankHelloBytes> bytes;
  EncodeRankHello(hello, bytes);
  std::span<const uint8_t> left = bytes;
  while (true) {
    if (tls != nullptr) {
      ASSIGN_OR_RETURN(const bool over, tls->Handshake());
      tls = over ? nullptr : tls;
    }
    if (tls == nullptr) {
      ASSIGN_OR_RETURN(const size_t sent, channel->Send(left));
      left = left.subspan(sent);
      if (left.empty()) {
        return channel;
      }
    }
    RETURN_IF_ERROR(patience.Check());
    // A new connection has room for what is sent: it waits for the other end.
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    (void)poll(&waiting, 1, static_cast<int>(kLook.count()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankListener>> RankListener::Open(const std::string& host,
                                                                 uint16_t port,
                                                                 milliseconds patience) {
  const auto cannot = [&](const std::string& why) {
    return Error(absl::StatusCode::kUnavailable, "RANK_LISTEN",
                 absl::StrCat("cannot listen for other ranks at ", Text(host, port), ": ", why))
        .Hint("free that port, or give the worker another by --ranks-listen");
  };
  const auto found = Resolve(host, port, AI_PASSIVE);
  if (!found.ok()) {
    return cannot(std::string(found.status().message()));
  }
  const SystemClock clock;
  const TimePoint deadline = clock.Now() + patience;
  while (true) {
    int error = 0;
    for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
      Socket socket(::socket(at->ai_family, at->ai_socktype, at->ai_protocol));
      sockaddr_storage bound{};
      socklen_t size = sizeof(bound);
      if (socket.fd() < 0 || !Prepare(socket.fd()) || (port != 0 && !MayShare(socket.fd())) ||
          bind(socket.fd(), at->ai_addr, at->ai_addrlen) != 0 ||
          listen(socket.fd(), static_cast<int>(kMostRankHellos)) != 0 ||
          getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
        error = errno;
        continue;
      }
      const uint16_t bound_port =
          ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
      return std::unique_ptr<RankListener>(new RankListener(socket.Release(), bound_port));
    }
    if (error != EADDRINUSE || port == 0 || clock.Now() >= deadline) {
      return cannot(std::strerror(error));
    }
    std::this_thread::sleep_for(kLook);
  }
}

RankListener::~RankListener() { close(socket_); }

absl::Status RankListener::Await(ExpectedRanks* expected, RankWire wire, const Clock& clock,
                                 TimePoint deadline, const std::function<bool()>& stopped,
                                 const std::function<void(const absl::Status&)>& refused) {
  std::vector<Pending> pending;
  while (!expected->complete()) {
    if (stopped()) {
      return absl::CancelledError("the stage is no longer wanted");
    }
    const TimePoint now = clock.Now();
    if (now >= deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, kCollectiveTimeout,
                   absl::StrCat("not all ranks connected in time; missing: ", expected->Missing()));
    }
    std::erase_if(pending, [&](const Pending& one) {
      if (now >= one.until) {
        refused(Silent());
      }
      return now >= one.until;
    });
    // With as many as may be at their hellos, others wait to be accepted.
    std::vector<pollfd> polled;
    for (const Pending& one : pending) {
      polled.push_back({.fd = one.fd, .events = POLLIN, .revents = 0});
    }
    if (pending.size() < kMostRankHellos) {
      polled.push_back({.fd = socket_, .events = POLLIN, .revents = 0});
    }
    (void)poll(polled.data(), polled.size(), static_cast<int>(kLook.count()));
    std::vector<Pending> left;
    for (size_t i = 0; i < pending.size(); ++i) {  // Who came first is taken first.
      bool whole = false;
      // What came may be within TLS already, where a poll does not see it.
      absl::Status status = Read(&pending[i], &whole);
      if (status.ok() && whole) {
        status = Admit(&pending[i], expected);
      }
      if (!status.ok()) {
        refused(status);
      } else if (!whole) {
        left.push_back(std::move(pending[i]));
      }
    }
    pending = std::move(left);
    if (polled.back().fd == socket_ && polled.back().revents != 0) {
      Socket accepted(accept(socket_, nullptr, nullptr));
      if (accepted.fd() >= 0 && Prepare(accepted.fd())) {
        auto one =
            NewPending(std::move(accepted), expected->secret(), wire, now + kRankHelloTimeout);
        if (one.ok()) {
          pending.push_back(*std::move(one));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RankChannel>> DialRank(const std::string& host, uint16_t port,
                                                      const RankHello& hello, RankWire wire,
                                                      milliseconds timeout,
                                                      const std::function<bool()>& stopped) {
  const std::string address = Text(host, port);
  const auto found = Resolve(host, port, 0);
  if (!found.ok()) {
    return Unreachable(address, std::string(found.status().message()));
  }
  const SystemClock clock;
  const Patience patience = {clock, clock.Now() + timeout, stopped};
  std::string why = std::strerror(ENETUNREACH);
  for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype, at->ai_protocol));
    if (socket.fd() < 0 || !Prepare(socket.fd())) {
      why = std::strerror(errno);
      continue;
    }
    const auto dial = [&]() -> absl::StatusOr<std::unique_ptr<RankChannel>> {
      RETURN_IF_ERROR(Connect(socket.fd(), *at, patience));
      return SayHello(std::move(socket), hello, wire, patience);
    };
    auto channel = dial();
    if (channel.ok() || absl::IsCancelled(channel.status())) {
      return channel;
    }
    why = std::string(channel.status().message());
  }
  return Unreachable(address, why);
}

}  // namespace strata
