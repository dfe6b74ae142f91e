// The packages' services of this machine, as whoever joins or makes a cluster sets them up.
#ifndef STRATA_COMMON_JOINING_SERVICES_H_
#define STRATA_COMMON_JOINING_SERVICES_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/certificates/tls_folder.h"

namespace strata {

// Whether packages brought the unit ("strata-worker.service"), systemd runs, and this is root.
bool CanStartService(const std::string& unit);

// Enables a unit and starts it anew; returns once systemd calls it started. UNAVAILABLE
// (SERVICE_FAILED) with what systemd said, or what RunProgram says.
absl::Status StartService(const std::string& unit);

// The group whose services may read keys; none where there is no such group, or this is not root.
TlsFolderAccess ServicesAccess();
// The user whose services may read and change what is theirs; as ServicesAccess where there is no
// such user.
TlsFolderAccess ServicesOwnership();

// Sets flags in a file for --config (WithSettings), as a whole or not at all: who may read it
// stays. A file that is not there is made. INTERNAL (FILE_FAILED) with `hint` where that cannot be.
absl::Status SetInConfig(const std::string& path,
                         const std::vector<std::pair<std::string, std::string>>& settings,
                         const std::string& hint);

// By which others on the network may dial this machine: its addresses, then its name, which may be
// known here alone; `most` of them.
std::vector<std::string> MachineHosts(size_t most);

}  // namespace strata

#endif  // STRATA_COMMON_JOINING_SERVICES_H_
