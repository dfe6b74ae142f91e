// The addresses of this machine.
#ifndef STRATA_COMMON_PLATFORM_ADDRESSES_H_
#define STRATA_COMMON_PLATFORM_ADDRESSES_H_

#include <string>
#include <vector>

namespace strata {

// The addresses, IPv4 before IPv6 and each once, of interfaces that are up, by which other machines
// may reach this one: without loopback's and those of a link alone. Empty where there are none or
// the system does not say.
std::vector<std::string> MachineAddresses();

// The interfaces that are up and take multicast, without loopback, for people: "eth0 (10.0.0.2)".
std::vector<std::string> MulticastInterfaces();

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_ADDRESSES_H_
