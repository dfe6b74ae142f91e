#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/platform/diagnosis.h"

namespace strata {
namespace {

// statfs(2)'s numbers.
constexpr uint32_t kTmpfs = 0x01021994;
constexpr uint32_t kRamfs = 0x858458f6;

struct Peer {
  std::string host;
  uint16_t port = 0;
};

// Of a socket that is connected; else port 0.
Peer PeerOf(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  char text[INET6_ADDRSTRLEN] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return {};
  }
  if (peer.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &peer, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return {text, ntohs(v4.sin_port)};
  }
  if (peer.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &peer, sizeof(v6));
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    std::string host = text;
    constexpr std::string_view kMapped = "::ffff:";
    if (host.starts_with(kMapped)) host.erase(0, kMapped.size());
    return {host, ntohs(v6.sin6_port)};
  }
  return {};
}

bool IsNumber(const std::string& host) {
  in6_addr binary;
  return inet_pton(AF_INET, host.c_str(), &binary) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &binary) == 1;
}

}  // namespace

TcpSent TcpSentTo(const std::string& host, uint16_t port) {
  TcpSent sent;
  const bool any = !IsNumber(host);
  std::error_code error;
  // gRPC does not tell its sockets. One that is closed meanwhile is none any more.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const Peer peer = PeerOf(fd);
    if (peer.port != port || (!any && peer.host != host)) {
      continue;
    }
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      sent.segments += info.tcpi_data_segs_out;
      // What came twice was not lost: it waited, in a queue that something else filled.
      sent.again +=
          info.tcpi_total_retrans - std::min(info.tcpi_total_retrans, info.tcpi_dsack_dups);
    }
  }
  return sent;
}

bool IsInMemory(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) {
    return false;
  }
  const auto type = static_cast<uint32_t>(info.f_type);
  return type == kTmpfs || type == kRamfs;
}

}  // namespace strata
