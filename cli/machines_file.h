// The machines of `strata plan --machines`: what each is worth to a plan. A TOML file.
#ifndef STRATA_CLI_MACHINES_FILE_H_
#define STRATA_CLI_MACHINES_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace strata::v1 {
class PlanMachinesRequest;
}

namespace strata::cli {

inline constexpr size_t kMaxMachinesFileBytes = size_t{1} << 20;

// Reads
//
//   [network]              # of the coordinator, and of machines that say nothing else
//   gbit-s = 10            # default 1
//   latency-ms = 0.2       # one way; default 0.3
//
//   [machines.studio]
//   device = "mlx"         # cpu, cuda or mlx; default cpu
//   memory = "96GiB"       # that weights, KV and buffers may take
//   read-gb-s = 819        # 10^9 bytes of weights read from memory a second
//   tflop-s = 28           # 10^12 operations a second
//   gbit-s = 40            # its own network, where it is another
//
// into the machines and the network of `request`, in the order of the file. INVALID_ARGUMENT
// (BAD_MACHINES) names `path`, the line and what is wrong; values that make no sense are left to
// the coordinator.
absl::Status ReadMachines(std::string_view text, const std::string& path,
                          v1::PlanMachinesRequest* request);

}  // namespace strata::cli

#endif  // STRATA_CLI_MACHINES_FILE_H_
