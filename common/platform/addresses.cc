#include "common/platform/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace strata {
namespace {

// The address as text; "" for one that others do not reach.
std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof(v4));
    const uint32_t number = ntohl(v4.sin_addr.s_addr);
    const bool link_alone = number >> 16 == 0xa9fe;  // 169.254.0.0/16, RFC 3927.
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return link_alone || number >> 24 == 127 ? "" : text;
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, address, sizeof(v6));
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) || IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ? "" : text;
}

}  // namespace

std::vector<std::string> MachineAddresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return {};
  }
  std::vector<std::string> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family ||
          (one->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      const std::string text = TextOf(one->ifa_addr);
      if (!text.empty() && std::find(found.begin(), found.end(), text) == found.end()) {
        found.push_back(text);
      }
    }
  }
  freeifaddrs(all);
  return found;
}

std::vector<std::string> MulticastInterfaces() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return {};
  }
  std::vector<std::string> names;
  std::vector<std::string> found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const unsigned wanted = IFF_UP | IFF_MULTICAST;
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & wanted) != wanted || (one->ifa_flags & IFF_LOOPBACK) != 0 ||
        std::find(names.begin(), names.end(), one->ifa_name) != names.end()) {
      continue;
    }
    char text[INET_ADDRSTRLEN] = {};
    sockaddr_in v4;
    std::memcpy(&v4, one->ifa_addr, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    names.emplace_back(one->ifa_name);
    found.push_back(names.back() + " (" + text + ")");
  }
  freeifaddrs(all);
  return found;
}

}  // namespace strata
