// Which devices a worker computes on, as --devices names them.
#ifndef STRATA_WORKER_BACKEND_DEVICE_CHOICE_H_
#define STRATA_WORKER_BACKEND_DEVICE_CHOICE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

struct NamedDevice {
  uint32_t index = 0;  // As the process counts its devices, from 0.
  double share = 0;    // Of each stage, to the others' shares; 0: by the devices' bandwidths.
};

struct DeviceChoice {
  bool all = false;                // All that there are.
  std::vector<NamedDevice> named;  // By rank. Shares are all stated, or none is.

  // Else the first device computes alone.
  bool given() const { return all || !named.empty(); }
};

// "" (not given), "all", "0,1" or "0=2,1=1". INVALID_ARGUMENT: BAD_DEVICES for what is no list of
// such, a device that is named twice, and shares of some alone; RANKS_INVALID for more devices than
// a stage has ranks.
absl::StatusOr<DeviceChoice> ParseDevices(std::string_view text);

// What a backend over chosen devices is made with.
struct DeviceOptions {
  DeviceChoice choice = {};
  // Of several devices, the most that stages take of each; 0: nine tenths of what is free.
  uint64_t memory_bytes = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_DEVICE_CHOICE_H_
