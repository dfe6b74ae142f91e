#include "cli/deploy/deployer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/config_file.h"
#include "common/shell_word.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{1000};
constexpr char kUploads[] = "/var/cache/strata-deploy";
constexpr char kLoopback[] = "localhost,127.0.0.1,::1";

}  // namespace

Deployer::Deployer(const Inventory& inventory, const Packages& packages, Shell* shell,
                   std::function<void(milliseconds)> wait,
                   std::function<void(const std::string&, const std::string&)> say,
                   DeployTimes times)
    : inventory_(inventory),
      packages_(packages),
      shell_(shell),
      wait_(std::move(wait)),
      say_(std::move(say)),
      times_(times) {}

const Machine& Deployer::MachineOf(const std::string& name) const {
  const auto found = std::find_if(inventory_.machines.begin(), inventory_.machines.end(),
                                  [&](const Machine& machine) { return machine.name == name; });
  STRATA_CHECK(found != inventory_.machines.end());
  return *found;
}

absl::StatusOr<std::map<std::string, MachineFacts>> Deployer::Look() {
  std::map<std::string, MachineFacts> facts;
  for (const Machine& machine : inventory_.machines) {
    ASSIGN_OR_RETURN(const std::string said, shell_->Run(machine, FactsScript(), {}));
    auto parsed = ParseFacts(said);
    if (!parsed.ok()) {
      return Annotate(parsed.status(), machine.name);
    }
    facts[machine.name] = *std::move(parsed);
  }
  return facts;
}

absl::Status Deployer::Apply(const Step& step) {
  const Machine& machine = MachineOf(step.machine);
  switch (step.kind) {
    case StepKind::kInstall:
      return Install(machine, step.packages);
    case StepKind::kInitCluster:
      return InitCluster(machine);
    case StepKind::kJoin:
      return Join(machine);
    case StepKind::kSetConfig:
      return SetConfig(machine, step.config, step.settings);
    case StepKind::kRestartUnit:
      return shell_
          ->Run(machine,
                absl::StrCat("systemctl enable --quiet ", step.unit, " && systemctl restart ",
                             step.unit, " || { journalctl --no-pager -n 5 -o cat -u ", step.unit,
                             " >&2; exit 1; }"),
                {})
          .status();
    case StepKind::kStopUnit:
      return shell_->Run(machine, "systemctl disable --now --quiet " + step.unit, {}).status();
  }
  return absl::OkStatus();
}

absl::Status Deployer::Install(const Machine& machine, const std::vector<std::string>& names) {
  std::vector<std::string> files;
  std::string noted;
  for (const std::string& name : names) {
    const Package& package = packages_.at(name);
    const std::string file = absl::StrCat(kUploads, "/", name, ".deb");
    say_(machine.name, absl::StrCat("sends ", name, " ", package.version));
    RETURN_IF_ERROR(
        shell_
            ->Run(machine,
                  absl::StrCat("set -e; mkdir -p -m 0755 ", kUploads, "; cat > ", file, "; echo '",
                               package.sha256, "  ", file, "' | sha256sum -c --quiet"),
                  {.file = package.path, .timeout = times_.install_timeout})
            .status());
    files.push_back(file);
    absl::StrAppend(&noted, "echo ", package.sha256, " > ", kDeployedDir, "/", name, ".sha256\n");
  }
  say_(machine.name, "installs " + absl::StrJoin(names, ", "));
  // Files of /etc/strata that somebody changed stay.
  const std::string install = absl::StrCat(
      "apt-get install -q -y --no-install-recommends --reinstall --allow-downgrades "
      "-o Dpkg::Options::=--force-confold ",
      absl::StrJoin(files, " "));
  return shell_
      ->Run(machine,
            absl::StrCat("set -e; export DEBIAN_FRONTEND=noninteractive\n", install,
                         " || { apt-get update -q; ", install, "; }\nmkdir -p ", kDeployedDir, "\n",
                         noted, "rm -f ", absl::StrJoin(files, " "), "\n"),
            {.timeout = times_.install_timeout})
      .status();
}

absl::Status Deployer::InitCluster(const Machine& machine) {
  std::string command =
      absl::StrCat("strata cluster init --name ", ShellWord(inventory_.cluster),
                   machine.worker ? " --worker " + ShellWord(machine.name) : " --no-worker");
  if (!machine.address.empty()) {
    absl::StrAppend(&command, " --hosts ", ShellWord(machine.address), ",", kLoopback);
  }
  return shell_->Run(machine, command, {}).status();
}

absl::Status Deployer::Join(const Machine& machine) {
  const Machine& coordinator = inventory_.CoordinatorMachine();
  std::string arguments = "node token --expires 10m";
  if (!coordinator.address.empty()) {
    absl::StrAppend(&arguments, " --host ", ShellWord(coordinator.address));
  }
  ASSIGN_OR_RETURN(const std::string said, RunStrata(arguments));
  const nlohmann::json made = nlohmann::json::parse(said, nullptr, /*allow_exceptions=*/false);
  if (!made.is_object() || !made.contains("token") || !made["token"].is_string()) {
    return Error(absl::StatusCode::kInternal, "BAD_FACTS",
                 "asked for a token, the coordinator's machine gave none")
        .Hint("see what it says there");
  }
  std::string command = absl::StrCat("strata-worker join - --name ", ShellWord(machine.name));
  if (!machine.address.empty()) {
    absl::StrAppend(&command, " --hosts ", ShellWord(machine.address));
  }
  // By its standard input: nobody on that machine sees it in the list of processes.
  return shell_->Run(machine, command, {.text = made["token"].get<std::string>() + "\n"}).status();
}

absl::Status Deployer::SetConfig(const Machine& machine, const std::string& path,
                                 const Settings& settings) {
  const std::string file = ShellWord(path);
  ASSIGN_OR_RETURN(const std::string before, shell_->Run(machine, "cat " + file, {}));
  // The copy keeps the owner and who may read it.
  return shell_
      ->Run(machine,
            absl::StrCat("set -e; cp -p ", file, " ", file, ".new; cat > ", file, ".new; mv ", file,
                         ".new ", file),
            {.text = WithSettings(before, settings)})
      .status();
}

absl::StatusOr<std::string> Deployer::RunStrata(const std::string& arguments) {
  return shell_->Run(inventory_.CoordinatorMachine(), "strata --json " + arguments, {});
}

absl::StatusOr<std::map<std::string, ListedNode>> Deployer::ListNodes() {
  ASSIGN_OR_RETURN(const std::string said, RunStrata("node list"));
  return ParseNodeList(said);
}

absl::Status Deployer::AwaitAll() {
  std::vector<std::string> missing;
  for (milliseconds waited{0};; waited += kLookAgain) {
    ASSIGN_OR_RETURN(const auto nodes, ListNodes());
    missing.clear();
    for (const Machine& machine : inventory_.machines) {
      const auto found = nodes.find(machine.name);
      if (machine.worker && (found == nodes.end() || !IsThere(found->second))) {
        missing.push_back(machine.name);
      }
    }
    if (missing.empty()) {
      return absl::OkStatus();
    }
    if (waited >= times_.join_timeout) {
      return Error(absl::StatusCode::kDeadlineExceeded, "NOT_JOINED",
                   absl::StrCat("not joined within ", times_.join_timeout.count() / 1000,
                                " s: ", absl::StrJoin(missing, ", ")))
          .Node(missing.front())
          .Hint("`journalctl -u strata-worker` there says why");
    }
    wait_(kLookAgain);
  }
}

absl::StatusOr<std::set<std::string>> Deployer::ThatMove(const std::vector<std::string>& held) {
  std::set<std::string> moving;
  for (const std::string& one : held) {
    const std::string model = one.substr(0, one.find(' '));
    ASSIGN_OR_RETURN(const std::string said, RunStrata("model show " + ShellArgument(model)));
    const nlohmann::json shown = nlohmann::json::parse(said, nullptr, /*allow_exceptions=*/false);
    const nlohmann::json::json_pointer recovery("/options/recovery");
    if (shown.is_object() && shown.contains(recovery) && shown[recovery] == "move") {
      moving.insert(one);
    }
  }
  return moving;
}

absl::Status Deployer::Empty(const std::string& node) {
  say_(node, "drains");
  RETURN_IF_ERROR(RunStrata("node drain " + ShellArgument(node)).status());
  std::optional<std::set<std::string>> moving;
  for (milliseconds waited{0}; waited < times_.drain_timeout; waited += kLookAgain) {
    ASSIGN_OR_RETURN(const auto nodes, ListNodes());
    const auto found = nodes.find(node);
    if (found == nodes.end() || !IsThere(found->second)) {
      return absl::OkStatus();
    }
    const std::vector<std::string>& held = found->second.models;
    if (!moving.has_value()) {
      ASSIGN_OR_RETURN(moving, ThatMove(held));
      if (moving->size() < held.size()) {
        say_(node, "has models that do not move: their requests wait until it is back");
      }
    }
    if (std::none_of(held.begin(), held.end(),
                     [&](const std::string& one) { return moving->contains(one); })) {
      return absl::OkStatus();
    }
    wait_(kLookAgain);
  }
  say_(node, "still has layers, whose requests wait until it is back");
  return absl::OkStatus();
}

absl::Status Deployer::AwaitNewLife(const std::string& node, uint64_t before) {
  for (milliseconds waited{0}; waited < times_.join_timeout; waited += kLookAgain) {
    // The coordinator may be on its way back.
    const auto nodes = ListNodes();
    if (nodes.ok()) {
      const auto found = nodes->find(node);
      if (found != nodes->end() && IsThere(found->second) && found->second.incarnation != before) {
        return absl::OkStatus();
      }
    }
    wait_(kLookAgain);
  }
  return Error(absl::StatusCode::kDeadlineExceeded, "NOT_JOINED",
               absl::StrCat("the node ", node, " is not back within ",
                            times_.join_timeout.count() / 1000, " s"))
      .Node(node)
      .Hint("`journalctl -u strata-worker` there says why; then run this again");
}

absl::Status Deployer::Upgrade(const Step& install) {
  const Machine& machine = MachineOf(install.machine);
  // With the coordinator everything is away for a moment.
  const bool alone = machine.worker && machine.name != inventory_.coordinator;
  uint64_t before = 0;
  if (machine.worker) {
    ASSIGN_OR_RETURN(const auto nodes, ListNodes());
    if (const auto found = nodes.find(machine.name); found != nodes.end()) {
      before = found->second.incarnation;
    }
  }
  if (alone) {
    RETURN_IF_ERROR(Empty(machine.name));
  }
  absl::Status done = Install(machine, install.packages);
  if (done.ok() && machine.worker) {
    say_(machine.name, "starts");
    done = AwaitNewLife(machine.name, before);
  }
  if (!alone) {
    return done;
  }
  if (!done.ok()) {
    return Annotate(
        done, absl::StrCat("the node is drained until `strata node resume ", machine.name, "`"));
  }
  return RunStrata("node resume " + ShellArgument(machine.name)).status();
}

}  // namespace strata::deploy
