// The packages' coordinator service on this machine, and the worker's beside it, given a cluster's
// certificates by `strata cluster init`.
#ifndef STRATA_CLI_COORDINATOR_SERVICE_H_
#define STRATA_CLI_COORDINATOR_SERVICE_H_

#include <string>

#include "absl/status/status.h"
#include "common/certificates/authority.h"
#include "common/certificates/tls_folder.h"

namespace strata::cli {

// Where its files are, and the worker's beside it. The authority is the service's own, which
// changes it (`strata cluster authority`), and lies where its unit lets it write.
inline constexpr char kServiceAuthority[] = "/var/lib/strata/authority";
inline constexpr char kServiceTls[] = "/etc/strata/tls";
inline constexpr char kWorkerServiceTls[] = "/etc/strata/worker-tls";

// Whether packages brought the service, systemd runs, and this is root: it can be set up.
bool CanSetUpService();

// The folder of the service's authority: the one that coordinator.toml names, else
// kServiceAuthority.
std::string ServiceAuthority();

// ALREADY_EXISTS (AUTHORITY_EXISTS) where the service has an authority.
absl::Status CheckServiceHasNoAuthority();

// Writes the folders above (that of the certificate readable by the service's group, the
// authority's the service's own), has coordinator.toml name them and, where it is to be `open` to
// other machines and listens on loopback, listen on all interfaces, enables the service and starts
// it anew. ALREADY_EXISTS (AUTHORITY_EXISTS, TLS_FOLDER_EXISTS), INTERNAL (FILE_FAILED);
// UNAVAILABLE (SERVICE_FAILED) where it does not start.
absl::Status SetUpService(const CertifiedKey& authority, const TlsFolder& coordinator, bool open);

// The port that coordinator.toml says, for whoever dials it here.
std::string ServicePort();

// Whether packages brought a worker as well.
bool HasWorkerService();

// The worker's service of this machine: writes its folder, has worker.toml name it, the coordinator
// and the node, enables the service and starts it anew, which waits until it has joined. Errors as
// SetUpService.
absl::Status SetUpWorkerService(const TlsFolder& worker, const std::string& name,
                                const std::string& coordinator);

}  // namespace strata::cli

#endif  // STRATA_CLI_COORDINATOR_SERVICE_H_
