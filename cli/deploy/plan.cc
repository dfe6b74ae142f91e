#include "cli/deploy/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config_file.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

constexpr size_t kShownValueBytes = 128;
constexpr char kCoordinatorPackage[] = "strata-coordinator";
constexpr char kWorkerPackage[] = "strata-worker";
constexpr char kCliPackage[] = "strata-cli";

std::string ConfigPath(const std::string& service) {
  return absl::StrCat(kConfigDir, "/", service, ".toml");
}

absl::Status UnfitMachine(const std::string& machine, std::string_view why, std::string_view hint) {
  return Error(absl::StatusCode::kFailedPrecondition, "MACHINE_UNFIT",
               absl::StrCat("the machine ", machine, " ", std::string(why)))
      .Node(machine)
      .Hint(hint);
}

// Those of `settings` that a file does not have; all where there is no file yet.
Settings Missing(const std::optional<std::string>& config, const Settings& settings) {
  Settings missing;
  for (const auto& setting : settings) {
    if (!config.has_value() || WithSettings(*config, {setting}) != *config) {
      missing.push_back(setting);
    }
  }
  return missing;
}

// The steps of one machine.
class MachinePlan {
 public:
  MachinePlan(const Inventory& inventory, const Packages& packages, const Machine& machine,
              const std::map<std::string, MachineFacts>& facts)
      : inventory_(inventory),
        packages_(packages),
        machine_(machine),
        facts_(facts.at(machine.name)),
        nodes_(facts.at(inventory.coordinator).nodes) {}

  absl::Status CheckFit() const {
    if (facts_.architecture.empty()) {
      return UnfitMachine(
          machine_.name, "has no dpkg: it is " + Printable(facts_.system, kShownValueBytes),
          "deploying takes Debian; docs/INSTALL.md says how other systems get the tarball");
    }
    if (!facts_.systemd) {
      return UnfitMachine(machine_.name, "is not run by systemd",
                          "start the processes there by hand (docs/OPERATIONS.md, Add a machine)");
    }
    if (!facts_.root) {
      return UnfitMachine(machine_.name, "is not administrated by the user that ssh logs in as",
                          "give `ssh` as root@HOST");
    }
    for (const std::string& name : Wanted()) {
      const std::string& architecture = packages_.at(name).architecture;
      if (architecture != "all" && architecture != facts_.architecture) {
        return UnfitMachine(
            machine_.name,
            absl::StrCat("is of the architecture ", facts_.architecture, ", and ",
                         packages_.at(name).path, " is for ", architecture),
            "give machines of another architecture an inventory with packages of theirs");
      }
    }
    return absl::OkStatus();
  }

  // The packages that it does not have as they are.
  std::vector<std::string> ToInstall() const {
    std::vector<std::string> names;
    for (const std::string& name : Wanted()) {
      const auto has = facts_.packages.find(name);
      const Package& package = packages_.at(name);
      // What another way brought is taken as it is, if it is of the same version.
      if (has == facts_.packages.end() || has->second.version != package.version ||
          (!has->second.sha256.empty() && has->second.sha256 != package.sha256)) {
        names.push_back(name);
      }
    }
    return names;
  }

  absl::Status CheckVersions() const {
    for (const std::string& name : Wanted()) {
      const auto has = facts_.packages.find(name);
      if (has != facts_.packages.end() && has->second.version != packages_.at(name).version) {
        return Error(
                   absl::StatusCode::kFailedPrecondition, "VERSION_DIFFERS",
                   absl::StrCat("the machine ", machine_.name, " has ", name, " ",
                                Printable(has->second.version, kShownValueBytes),
                                ", and the inventory's packages are ", packages_.at(name).version))
            .Node(machine_.name)
            .Hint("`strata cluster upgrade INVENTORY` replaces them, machine by machine");
      }
    }
    return absl::OkStatus();
  }

  // `authority`: the digest of the cluster's ca.pem; "" where it is not made yet.
  std::vector<Step> Steps(const std::string& authority) {
    if (std::vector<std::string> names = ToInstall(); !names.empty()) {
      Add({.kind = StepKind::kInstall, .packages = std::move(names)});
    }
    // Before what starts its service.
    const bool set =
        machine_.worker && Set("worker", facts_.worker_config, machine_.worker_settings);
    if (IsCoordinator()) {
      Coordinator(authority.empty());
    }
    Worker(authority, set);
    return std::move(steps_);
  }

 private:
  bool IsCoordinator() const { return machine_.name == inventory_.coordinator; }

  std::vector<std::string> Wanted() const {
    std::vector<std::string> names;
    if (IsCoordinator()) {
      names.emplace_back(kCoordinatorPackage);
    }
    if (machine_.worker) {
      names.emplace_back(kWorkerPackage);
    }
    names.emplace_back(kCliPackage);
    return names;
  }

  void Add(Step step) {
    step.machine = machine_.name;
    steps_.push_back(std::move(step));
  }

  // Whether anything was to be set.
  bool Set(const std::string& service, const std::optional<std::string>& config,
           const Settings& settings) {
    Settings missing = Missing(config, settings);
    if (missing.empty()) {
      return false;
    }
    Add({.kind = StepKind::kSetConfig,
         .config = ConfigPath(service),
         .settings = std::move(missing)});
    return true;
  }

  // Installing starts services that are enabled.
  bool Runs(const std::string& unit) const {
    const auto found = facts_.units.find(unit);
    return found != facts_.units.end() && found->second.active && found->second.enabled;
  }

  void Coordinator(bool init) {
    const bool set = Set("coordinator", facts_.coordinator_config, inventory_.coordinator_settings);
    if (init) {
      Add({.kind = StepKind::kInitCluster});
    } else if (set || !Runs(kCoordinatorUnit)) {
      Add({.kind = StepKind::kRestartUnit, .unit = kCoordinatorUnit});
    }
  }

  void Worker(const std::string& authority, bool set) {
    if (!machine_.worker) {
      const auto found = facts_.units.find(kWorkerUnit);
      if (found != facts_.units.end() && (found->second.active || found->second.enabled)) {
        Add({.kind = StepKind::kStopUnit, .unit = kWorkerUnit});
      }
      return;
    }
    if (IsCoordinator() && authority.empty()) {
      return;  // Its worker joins when the cluster is made.
    }
    // An authority may have been followed by another since it joined.
    const auto listed = nodes_.find(machine_.name);
    const bool trusted =
        facts_.worker_ca_sha256 == authority || (listed != nodes_.end() && IsThere(listed->second));
    const bool member = !authority.empty() && trusted &&
                        Missing(facts_.worker_config, {{"name", machine_.name}}).empty();
    if (!member) {
      Add({.kind = StepKind::kJoin});
    } else if (set || !Runs(kWorkerUnit)) {
      Add({.kind = StepKind::kRestartUnit, .unit = kWorkerUnit});
    }
  }

  const Inventory& inventory_;
  const Packages& packages_;
  const Machine& machine_;
  const MachineFacts& facts_;
  const std::map<std::string, ListedNode>& nodes_;  // As the coordinator lists them.
  std::vector<Step> steps_;
};

// The coordinator's first, then as in the inventory.
std::vector<const Machine*> InOrder(const Inventory& inventory) {
  std::vector<const Machine*> machines = {&inventory.CoordinatorMachine()};
  for (const Machine& machine : inventory.machines) {
    if (machine.name != inventory.coordinator) {
      machines.push_back(&machine);
    }
  }
  return machines;
}

}  // namespace

std::string Describe(const Step& step, const Packages& packages) {
  switch (step.kind) {
    case StepKind::kInstall: {
      std::vector<std::string> words;
      for (const std::string& name : step.packages) {
        words.push_back(absl::StrCat(name, " ", packages.at(name).version));
      }
      return "install " + absl::StrJoin(words, ", ");
    }
    case StepKind::kInitCluster:
      return "make the cluster's authority and start its services";
    case StepKind::kJoin:
      return "join the cluster and start strata-worker";
    case StepKind::kSetConfig: {
      std::vector<std::string> words;
      for (const auto& [key, value] : step.settings) {
        words.push_back(absl::StrCat(key, " = ", Printable(value, kShownValueBytes)));
      }
      return absl::StrCat("set ", absl::StrJoin(words, ", "), " in ", step.config);
    }
    case StepKind::kRestartUnit:
      return "restart " + step.unit;
    case StepKind::kStopUnit:
      return "stop and disable " + step.unit;
  }
  return "";
}

absl::StatusOr<std::vector<Step>> PlanDeploy(const Inventory& inventory, const Packages& packages,
                                             const std::map<std::string, MachineFacts>& facts) {
  const std::string& authority = facts.at(inventory.coordinator).authority_sha256;
  std::vector<Step> steps;
  for (const Machine* machine : InOrder(inventory)) {
    MachinePlan plan(inventory, packages, *machine, facts);
    RETURN_IF_ERROR(plan.CheckFit());
    RETURN_IF_ERROR(plan.CheckVersions());
    for (Step& step : plan.Steps(authority)) {
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

absl::StatusOr<std::vector<Step>> PlanUpgrade(const Inventory& inventory, const Packages& packages,
                                              const std::map<std::string, MachineFacts>& facts) {
  std::vector<const Machine*> machines = InOrder(inventory);
  std::rotate(machines.begin(), machines.begin() + 1, machines.end());
  std::vector<Step> steps;
  for (const Machine* machine : machines) {
    const MachinePlan plan(inventory, packages, *machine, facts);
    RETURN_IF_ERROR(plan.CheckFit());
    if (std::vector<std::string> names = plan.ToInstall(); !names.empty()) {
      Step step;
      step.kind = StepKind::kInstall;
      step.machine = machine->name;
      step.packages = std::move(names);
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

}  // namespace strata::deploy
