// Carries out the steps of a plan on the machines of an inventory, and sees whether they have what
// they should.
#ifndef STRATA_CLI_DEPLOY_DEPLOYER_H_
#define STRATA_CLI_DEPLOY_DEPLOYER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/deploy/inventory.h"
#include "cli/deploy/machine_facts.h"
#include "cli/deploy/node_list.h"
#include "cli/deploy/packages.h"
#include "cli/deploy/plan.h"
#include "cli/deploy/shell.h"

namespace strata::deploy {

struct DeployTimes {
  // How long workers have to join once all is installed, and to come back after an upgrade.
  std::chrono::milliseconds join_timeout{120'000};
  // How long models have to leave a node before it is replaced.
  std::chrono::milliseconds drain_timeout{300'000};
  // How long a package may take to be copied, and to be installed.
  std::chrono::milliseconds install_timeout{900'000};
};

// One thread. What is handed in outlives it. Errors are those of Shell, and where said.
class Deployer {
 public:
  // `wait` sleeps for so long; `say` gets a line for people about what goes on at a machine.
  Deployer(const Inventory& inventory, const Packages& packages, Shell* shell,
           std::function<void(std::chrono::milliseconds)> wait,
           std::function<void(const std::string& machine, const std::string& line)> say,
           DeployTimes times = {});

  // What all machines have.
  absl::StatusOr<std::map<std::string, MachineFacts>> Look();

  absl::Status Apply(const Step& step);

  // Waits until all workers of the inventory are listed and reachable. DEADLINE_EXCEEDED
  // (NOT_JOINED) names those that are not.
  absl::Status AwaitAll();

  // Replaces the packages of one machine: models that may leave its worker do, it is installed, the
  // worker is back in another life, and is used again. Where it fails on the way the message says
  // whether the node is drained still.
  absl::Status Upgrade(const Step& install);

 private:
  const Machine& MachineOf(const std::string& name) const;
  absl::Status Install(const Machine& machine, const std::vector<std::string>& names);
  absl::Status InitCluster(const Machine& machine);
  absl::Status Join(const Machine& machine);
  absl::Status SetConfig(const Machine& machine, const std::string& path, const Settings& settings);

  // On the coordinator's machine.
  absl::StatusOr<std::string> RunStrata(const std::string& arguments);
  absl::StatusOr<std::map<std::string, ListedNode>> ListNodes();
  // Drains it and waits until no model that may move has layers there, or for drain_timeout.
  absl::Status Empty(const std::string& node);
  // Of what a node holds ("NAME layers a-b"), the models that leave a drained node.
  absl::StatusOr<std::set<std::string>> ThatMove(const std::vector<std::string>& held);
  // Until the node is listed as reachable in another life than `before`.
  absl::Status AwaitNewLife(const std::string& node, uint64_t before);

  const Inventory& inventory_;
  const Packages& packages_;
  Shell* const shell_;
  const std::function<void(std::chrono::milliseconds)> wait_;
  const std::function<void(const std::string&, const std::string&)> say_;
  const DeployTimes times_;
};

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_DEPLOYER_H_
