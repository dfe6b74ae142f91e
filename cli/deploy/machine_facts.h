// What a machine has before anything is changed on it: one shell script says it, and this reads
// what that wrote.
#ifndef STRATA_CLI_DEPLOY_MACHINE_FACTS_H_
#define STRATA_CLI_DEPLOY_MACHINE_FACTS_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/deploy/node_list.h"

namespace strata::deploy {

// Where services of the packages have their files.
inline constexpr char kConfigDir[] = "/etc/strata";
inline constexpr char kCoordinatorUnit[] = "strata-coordinator";
inline constexpr char kWorkerUnit[] = "strata-worker";
// Deploying notes there which package file it installed: NAME.sha256.
inline constexpr char kDeployedDir[] = "/var/lib/strata/deployed";

struct UnitFacts {
  bool active = false;
  bool enabled = false;
};

struct InstalledPackage {
  std::string version;
  std::string sha256;  // Of the file that deploying installed; "": another way brought it.
};

struct MachineFacts {
  std::string system;        // ID and VERSION_ID of os-release: "debian 12".
  std::string architecture;  // dpkg's word; "" where there is no dpkg.
  bool root = false;
  bool systemd = false;  // Runs as the first process.
  std::map<std::string, InstalledPackage> packages;
  std::map<std::string, UnitFacts> units;
  std::optional<std::string> coordinator_config, worker_config;  // The files' texts.
  std::string authority_sha256;             // Of the coordinator's ca.pem; "": it has none.
  std::string worker_ca_sha256;             // Of the ca.pem that the worker joined with.
  std::map<std::string, ListedNode> nodes;  // Of a coordinator that runs there, by name.
};

// A POSIX shell script that changes nothing, and writes lines «word value».
std::string FactsScript();

// What the script wrote. INTERNAL (BAD_FACTS) where that cannot be it: its last line is missing, as
// after a broken connection, or a value cannot be read. Unknown words are passed over.
absl::StatusOr<MachineFacts> ParseFacts(std::string_view text);

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_MACHINE_FACTS_H_
