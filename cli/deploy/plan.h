// What deploying an inventory changes, and in which order. A pure function: it reads no file, and
// asks no machine.
#ifndef STRATA_CLI_DEPLOY_PLAN_H_
#define STRATA_CLI_DEPLOY_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/deploy/inventory.h"
#include "cli/deploy/machine_facts.h"
#include "cli/deploy/packages.h"

namespace strata::deploy {

enum class StepKind {
  kInstall,      // `packages`, in one call of apt.
  kInitCluster,  // On the coordinator's machine: `strata cluster init`, which starts its services.
  kJoin,         // `strata-worker join`, with a token that the coordinator's machine makes.
  kSetConfig,    // The file `config` gets `settings`.
  kRestartUnit,  // Enables and starts `unit`, or starts it anew.
  kStopUnit,     // Stops and disables `unit`.
};

struct Step {
  StepKind kind = StepKind::kInstall;
  std::string machine{};
  std::vector<std::string> packages{};
  std::string unit{};
  std::string config{};  // A path.
  Settings settings{};   // Those that the file lacks.
};

// One line for people, without the machine: "install strata-worker 0.2.0".
std::string Describe(const Step& step, const Packages& packages);

// The steps from what is to what the inventory says; none where nothing differs. The coordinator's
// machine comes first, then the others in their order. `facts` has every machine of the inventory.
// FAILED_PRECONDITION: MACHINE_UNFIT (no root, no systemd, no Debian, another architecture) or
// VERSION_DIFFERS (another version is installed, which `strata cluster upgrade` replaces), with the
// machine as the node.
absl::StatusOr<std::vector<Step>> PlanDeploy(const Inventory& inventory, const Packages& packages,
                                             const std::map<std::string, MachineFacts>& facts);

// The machines whose packages differ from `packages`, in the order in which they are replaced: the
// coordinator's last. Errors as PlanDeploy, but for VERSION_DIFFERS. Each gets one step, kInstall.
absl::StatusOr<std::vector<Step>> PlanUpgrade(const Inventory& inventory, const Packages& packages,
                                              const std::map<std::string, MachineFacts>& facts);

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_PLAN_H_
