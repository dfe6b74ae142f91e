// Why no connection to a member of the cluster comes about. gRPC says little of that, and other
// things in each of its versions: so the connection is made once more, by hand.
#ifndef STRATA_COMMON_RPC_CONNECTION_PROBE_H_
#define STRATA_COMMON_RPC_CONNECTION_PROBE_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/tls_files.h"

namespace strata {

// Connects to `address`, shakes hands (`files`; null: plain text) and waits for the first frame of
// HTTP/2. OK where all of that works. Else a sentence that goes on after "it cannot be reached:",
// with a hint where there is something to do; the reason is one of
//   CONNECTION_REFUSED, CONNECTION_TIMED_OUT, NAME_NOT_RESOLVED, NO_ROUTE: below TLS
//   TLS_EXPIRED, TLS_NOT_YET_VALID, TLS_WRONG_CA, TLS_WRONG_NAME, ...: of its certificate
//   TLS_NOT_ACCEPTED: of ours, there
//   TLS_WANTED, NO_TLS, NO_GRPC, SAYS_NOTHING, CONNECTION_CLOSED
// Waits up to `timeout` (resolving the name aside). Any thread.
absl::Status ProbeConnection(const std::string& address, const TlsFiles* files,
                             std::chrono::milliseconds timeout);

// Of the certificates that `address` shows over TLS, the one whose SHA-256 is `sha256` (64
// hexadecimal digits): PEM. By it can be checked who listens there, which was not done here;
// nothing is shown or said. UNAVAILABLE as above; TLS_WRONG_CA where it shows no such certificate.
absl::StatusOr<std::string> FetchAuthority(const std::string& address, const std::string& sha256,
                                           std::chrono::milliseconds timeout);

// Whether certificates, or that one end has none, are the cause.
bool IsOfTls(const absl::Status& cause);

// Whether the cause stays until somebody mends it, however long one waits.
bool IsLastingCause(const absl::Status& cause);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_CONNECTION_PROBE_H_
