// What a doctor asks of the system.
#ifndef STRATA_COMMON_PLATFORM_DIAGNOSIS_H_
#define STRATA_COMMON_PLATFORM_DIAGNOSIS_H_

#include <cstdint>
#include <string>

namespace strata {

// Of all TCP connections of this process to a port of `host` (an address; of a name any address
// counts): segments with data that were sent, and those that were sent again. Zeros where the
// system does not say. Any thread.
struct TcpSent {
  uint64_t segments = 0;
  uint64_t again = 0;
};
TcpSent TcpSentTo(const std::string& host, uint16_t port);

// Whether `path` is on a file system that is gone when the machine restarts. False where the system
// does not say.
bool IsInMemory(const std::string& path);

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_DIAGNOSIS_H_
