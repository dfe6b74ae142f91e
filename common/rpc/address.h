// host:port strings, and what the sockets of this machine say about them.
#ifndef STRATA_COMMON_RPC_ADDRESS_H_
#define STRATA_COMMON_RPC_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

struct HostPort {
  std::string host;  // Without brackets.
  uint16_t port = 0;
  // "host:port", "[::1]:port".
  std::string ToString() const;
};

// "host:port", "[::1]:7070". INVALID_ARGUMENT names the text and the form.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

// An address to connect to: as above, with a host and a port other than 0 (which only a listener
// may have).
absl::StatusOr<HostPort> ParseDialled(std::string_view text);

// 127.0.0.0/8, ::1 or "localhost".
bool IsLoopback(std::string_view host);

// 0.0.0.0, :: or an empty host: every interface.
bool IsAnyAddress(std::string_view host);

// The local address that a connection to `remote` would have. Resolves `remote` and asks the
// routing table; sends nothing. UNAVAILABLE when it does not resolve or no route leads there.
absl::StatusOr<std::string> LocalAddressTowards(const HostPort& remote);

// Whether `address` can be listened on now: INVALID_ARGUMENT (it does not resolve, is not of this
// machine, or needs privileges) or ALREADY_EXISTS, reason ADDRESS_IN_USE, with what to do.
absl::Status CanListen(const HostPort& address);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_ADDRESS_H_
