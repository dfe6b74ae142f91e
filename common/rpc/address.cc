#include "common/rpc/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMaxHostBytes = 253;
constexpr size_t kShownBytes = 300;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const HostPort& address, int type, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                             std::to_string(address.port).c_str(), &hints, &found);
  if (rc != 0) {
    return Error(absl::StatusCode::kUnavailable, "NAME_NOT_RESOLVED",
                 "cannot resolve \"" + address.host + "\": " + gai_strerror(rc))
        .Hint("check the host name");
  }
  return AddressList(found, &freeaddrinfo);
}

// Of names, addresses and zones (fe80::1%eth0). Bytes above ASCII may be of a name in UTF-8.
bool IsHostCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
         c == ':' || c == '%' || (c & 0x80) != 0;
}

class Socket {
 public:
  explicit Socket(const addrinfo& info)
      : fd_(socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC, info.ai_protocol)) {}
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

std::string HostPort::ToString() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const absl::Status bad =
      Error(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
            "\"" + Printable(text, kShownBytes) + "\" is no address")
          .Hint("write HOST:PORT, for example 192.168.1.10:7070, [::1]:7070 or 0.0.0.0:7070");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return bad;
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') {
      return bad;
    }
    host = host.substr(1, host.size() - 2);
    in6_addr v6{};
    if (!host.empty() &&
        inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &v6) != 1) {
      return bad;
    }
  } else if (host.find(':') != std::string_view::npos) {
    return bad;  // An IPv6 address without brackets.
  }
  HostPort out;
  out.host = std::string(host);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size() || port.empty() ||
      host.size() > kMaxHostBytes || !std::all_of(host.begin(), host.end(), IsHostCharacter) ||
      (!host.empty() && (host[0] == '-' || host[0] == '.'))) {
    return bad;
  }
  return out;
}

absl::StatusOr<HostPort> ParseDialled(std::string_view text) {
  ASSIGN_OR_RETURN(HostPort address, ParseHostPort(text));
  if (address.host.empty() || address.port == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
                 "\"" + std::string(text) + "\" has no " +
                     (address.host.empty() ? "host" : "port that can be connected to"))
        .Hint("write HOST:PORT, for example 192.168.1.10:7070");
  }
  return address;
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost") {
    return true;
  }
  const std::string text(host);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6{};
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsAnyAddress(std::string_view host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

absl::StatusOr<std::string> LocalAddressTowards(const HostPort& remote) {
  // A connected datagram socket has a local address and has sent nothing.
  ASSIGN_OR_RETURN(AddressList list, Resolve(remote, SOCK_DGRAM, /*passive=*/false));
  int error = 0;
  for (const addrinfo* info = list.get(); info != nullptr; info = info->ai_next) {
    const Socket socket(*info);
    if (socket.fd() < 0 || connect(socket.fd(), info->ai_addr, info->ai_addrlen) != 0) {
      error = errno;
      continue;
    }
    sockaddr_storage local{};
    socklen_t size = sizeof(local);
    char text[INET6_ADDRSTRLEN] = {};
    if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return std::string(text);
    }
    error = errno;
  }
  return Error(absl::StatusCode::kUnavailable, "NO_ROUTE",
               "no route to " + remote.ToString() + ": " + std::strerror(error))
      .Hint("check the address and the network");
}

absl::Status CanListen(const HostPort& address) {
  ASSIGN_OR_RETURN(AddressList list, Resolve(address, SOCK_STREAM, /*passive=*/true));
  int error = 0;
  for (const addrinfo* info = list.get(); info != nullptr; info = info->ai_next) {
    const Socket socket(*info);
    const int on = 1;
    if (socket.fd() >= 0 &&
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(socket.fd(), info->ai_addr, info->ai_addrlen) == 0 && listen(socket.fd(), 1) == 0) {
      return absl::OkStatus();
    }
    error = errno;
  }
  const std::string what = "cannot listen on " + address.ToString() + ": " + std::strerror(error);
  if (error == EADDRINUSE) {
    return Error(absl::StatusCode::kAlreadyExists, "ADDRESS_IN_USE", what)
        .Hint("stop what listens there, or choose another port with --listen (port 0 picks one)");
  }
  return Error(absl::StatusCode::kInvalidArgument, "CANNOT_LISTEN", what)
      .Hint("give an address of this machine with --listen");
}

}  // namespace strata
