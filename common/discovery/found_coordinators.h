// What answers to the question which coordinators are on the local network (DNS-SD): read, and told
// to people. Pure.
#ifndef STRATA_COMMON_DISCOVERY_FOUND_COORDINATORS_H_
#define STRATA_COMMON_DISCOVERY_FOUND_COORDINATORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The service by which coordinators are announced, and the facts of it (TXT records, RFC 6763).
inline constexpr char kCoordinatorService[] = "_strata._tcp";
inline constexpr char kAuthorityFact[] = "ca";  // SHA-256 of the authority's certificate.
inline constexpr char kPortFact[] = "port";     // Of all but joining, whose port is the service's.

// The most that are looked at of what answers.
inline constexpr size_t kMaxFoundCoordinators = 64;
inline constexpr size_t kMaxFoundLines = 4096;
inline constexpr size_t kMaxFoundLineBytes = 4096;

// One that can be dialled. Whoever is on the network may say any of this.
struct FoundCoordinator {
  std::string name;              // Printable.
  std::string interface;         // Of this machine, where the answer came from; printable.
  std::string address;           // IPv4 or IPv6.
  uint16_t join_port = 0;        // Where machines join.
  uint16_t port = 0;             // Where workers and people dial it.
  std::string authority_sha256;  // 64 hexadecimal digits, in lower case.

  bool operator==(const FoundCoordinator&) const = default;
};

// From what `avahi-browse --resolve --parsable` wrote; each once, those of other machines before
// those of loopback, IPv4 before IPv6. Lines that are no whole answer, are too long or too many are
// left out, and so are addresses that are of no use without their link.
std::vector<FoundCoordinator> ReadFoundCoordinators(std::string_view said);

// Those of that authority (64 hexadecimal digits, in lower case).
std::vector<FoundCoordinator> CoordinatorsOf(const std::vector<FoundCoordinator>& found,
                                             std::string_view authority_sha256);

// A line for each, and whether it is of that authority.
std::string DescribeFound(const std::vector<FoundCoordinator>& found,
                          std::string_view authority_sha256);

}  // namespace strata

#endif  // STRATA_COMMON_DISCOVERY_FOUND_COORDINATORS_H_
