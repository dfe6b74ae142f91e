// The inventory of `strata cluster deploy`: which machines a cluster has, and with which flags its
// services run. A TOML file.
#ifndef STRATA_CLI_DEPLOY_INVENTORY_H_
#define STRATA_CLI_DEPLOY_INVENTORY_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace strata::deploy {

inline constexpr size_t kMaxInventoryBytes = size_t{1} << 20;
inline constexpr size_t kMaxMachines = 256;

// Flags of a process without their dashes, and their values as text, as a file for --config has
// them.
using Settings = std::vector<std::pair<std::string, std::string>>;

struct Machine {
  std::string name;     // The node's in the cluster.
  std::string ssh;      // Where ssh gets to it: USER@HOST, or a name of ssh's configuration.
  std::string address;  // By which the others dial it; "": what it finds itself.
  bool worker = true;
  Settings worker_settings;
};

struct Inventory {
  std::string cluster = "strata";
  std::string packages;     // A folder of Debian packages; relative to the inventory's.
  std::string coordinator;  // The machine that it runs on.
  Settings coordinator_settings;
  std::vector<Machine> machines;  // In the order of the file.

  // CHECKs that it is in `machines`, as ParseInventory does.
  const Machine& CoordinatorMachine() const;
};

// Reads
//
//   name = "home"                # of the cluster; default strata
//   packages = "build/packages"  # what `./dev package` made
//
//   [coordinator]
//   machine = "alpha"            # one of those below
//   max-http-memory = "1GiB"     # flags of strata-coordinator
//
//   [machines.alpha]
//   ssh = "root@10.77.0.1"
//   address = "10.77.0.1"        # by which others dial it; default: what the machine finds
//   worker = true                # default
//   memory = "24GiB"             # flags of strata-worker
//
// INVALID_ARGUMENT (BAD_INVENTORY) names `path`, the line and what is wrong. Flags that deploying
// sets itself (`name`, `coordinator`, `tls-dir`, `authority`) are refused; others are checked by
// the processes that read them.
absl::StatusOr<Inventory> ParseInventory(std::string_view text, const std::string& path);

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_INVENTORY_H_
