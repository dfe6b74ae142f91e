// Which coordinators are on the local network, by the avahi-daemon of this machine.
#ifndef STRATA_COMMON_DISCOVERY_ASK_NETWORK_H_
#define STRATA_COMMON_DISCOVERY_ASK_NETWORK_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/discovery/found_coordinators.h"

namespace strata {

// Asks up to three times, for some seconds, until one of that authority (64 hexadecimal digits)
// answers, and returns those of it. `say` is told on which interfaces, and who answered. NOT_FOUND:
// NO_COORDINATOR_ANSWERED, OTHER_COORDINATORS_ANSWERED, PROGRAM_MISSING (avahi-browse); UNAVAILABLE
// (NO_AVAHI) where that does not work. Waits.
absl::StatusOr<std::vector<FoundCoordinator>> AskNetworkFor(
    std::string_view authority_sha256, const std::function<void(const std::string&)>& say);

}  // namespace strata

#endif  // STRATA_COMMON_DISCOVERY_ASK_NETWORK_H_
