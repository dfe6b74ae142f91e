// strata cluster deploy and upgrade: the machines of an inventory, by ssh.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/deploy/deployer.h"
#include "cli/deploy/inventory.h"
#include "cli/deploy/packages.h"
#include "cli/deploy/plan.h"
#include "cli/deploy/shell.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

struct DeployFlags {
  std::string inventory;
  bool dry_run = false;
  std::string connect_timeout = "10s";
  std::string install_timeout = "15m";
  std::string join_timeout = "2m";
  std::string drain_timeout = "5m";
};

// A folder that this user alone can read, for as long as this lives. Its name is short: sockets lie
// in it.
class PrivateFolder {
 public:
  static absl::StatusOr<std::unique_ptr<PrivateFolder>> Make() {
    std::string path = "/tmp/strata-ssh-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return Error(absl::StatusCode::kInternal, "FILE_FAILED", "cannot make a folder in /tmp");
    }
    return std::make_unique<PrivateFolder>(path);
  }
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

absl::StatusOr<milliseconds> TimeOf(const char* flag, const std::string& text) {
  const auto time = ParseDuration(text);
  if (!time.ok()) {
    return UsageError(absl::StrCat(flag, " ", text, ": write a time like 30s or 5m"));
  }
  return std::chrono::ceil<milliseconds>(*time);
}

absl::StatusOr<deploy::Inventory> ReadInventory(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.good()) {
    return Error(absl::StatusCode::kNotFound, "BAD_INVENTORY", "cannot read " + path)
        .Hint("docs/OPERATIONS.md, Many machines, has one to begin with");
  }
  ASSIGN_OR_RETURN(deploy::Inventory inventory, deploy::ParseInventory(text, path));
  if (const fs::path packages = inventory.packages; packages.is_relative()) {
    inventory.packages = (fs::path(path).parent_path() / packages).string();
  }
  return inventory;
}

// What both commands work with.
struct Deployment {
  deploy::Inventory inventory;
  deploy::Packages packages;
  std::unique_ptr<PrivateFolder> folder;
  std::unique_ptr<deploy::Shell> shell;
  std::unique_ptr<deploy::Deployer> deployer;
  std::map<std::string, deploy::MachineFacts> facts;
};

void Say(const Context& context, const std::string& machine, const std::string& line) {
  context.err() << machine << ": " << Printable(line, 1024) << std::endl;
}

absl::StatusOr<std::unique_ptr<Deployment>> Begin(const Context& context,
                                                  const DeployFlags& flags) {
  auto deployment = std::make_unique<Deployment>();
  deploy::DeployTimes times;
  ASSIGN_OR_RETURN(const milliseconds connect_timeout,
                   TimeOf("--connect-timeout", flags.connect_timeout));
  ASSIGN_OR_RETURN(times.install_timeout, TimeOf("--install-timeout", flags.install_timeout));
  ASSIGN_OR_RETURN(times.join_timeout, TimeOf("--join-timeout", flags.join_timeout));
  ASSIGN_OR_RETURN(times.drain_timeout, TimeOf("--drain-timeout", flags.drain_timeout));
  ASSIGN_OR_RETURN(deployment->inventory, ReadInventory(flags.inventory));
  ASSIGN_OR_RETURN(deployment->packages, deploy::FindPackages(deployment->inventory.packages));
  ASSIGN_OR_RETURN(deployment->folder, PrivateFolder::Make());
  deployment->shell = deploy::MakeSshShell(
      deployment->folder->path(),
      std::max(std::chrono::ceil<std::chrono::seconds>(connect_timeout), std::chrono::seconds(1)));
  deployment->deployer = std::make_unique<deploy::Deployer>(
      deployment->inventory, deployment->packages, deployment->shell.get(),
      [](milliseconds time) { std::this_thread::sleep_for(time); },
      [&context](const std::string& machine, const std::string& line) {
        Say(context, machine, line);
      },
      times);
  context.err() << "looking at " << Counted(deployment->inventory.machines.size(), "machine")
                << std::endl;
  ASSIGN_OR_RETURN(deployment->facts, deployment->deployer->Look());
  return deployment;
}

void PrintSteps(const Context& context, const Deployment& deployment,
                const std::vector<deploy::Step>& steps, bool done) {
  if (context.json()) {
    Json list = Json::array();
    for (const deploy::Step& step : steps) {
      list.push_back({{"machine", step.machine}, {"step", Describe(step, deployment.packages)}});
    }
    WriteJson({{"steps", std::move(list)}, {"done", done}}, &context.out());
    return;
  }
  if (steps.empty()) {
    context.out() << "nothing differs from the inventory\n";
    return;
  }
  if (done) {
    context.out() << "done: " << Counted(steps.size(), "step") << "; `strata node list` on "
                  << deployment.inventory.coordinator << " lists the workers\n";
    return;
  }
  Table table({"MACHINE", "STEP"});
  for (const deploy::Step& step : steps) {
    table.AddRow({step.machine, Describe(step, deployment.packages)});
  }
  table.Print(&context.out());
}

absl::Status RunDeploy(const Context& context, const DeployFlags& flags) {
  ASSIGN_OR_RETURN(const auto deployment, Begin(context, flags));
  ASSIGN_OR_RETURN(
      const std::vector<deploy::Step> steps,
      deploy::PlanDeploy(deployment->inventory, deployment->packages, deployment->facts));
  if (!flags.dry_run) {
    for (const deploy::Step& step : steps) {
      Say(context, step.machine, Describe(step, deployment->packages));
      RETURN_IF_ERROR(deployment->deployer->Apply(step));
    }
    RETURN_IF_ERROR(deployment->deployer->AwaitAll());
  }
  PrintSteps(context, *deployment, steps, !flags.dry_run);
  return absl::OkStatus();
}

absl::Status RunUpgrade(const Context& context, const DeployFlags& flags) {
  ASSIGN_OR_RETURN(const auto deployment, Begin(context, flags));
  ASSIGN_OR_RETURN(
      const std::vector<deploy::Step> steps,
      deploy::PlanUpgrade(deployment->inventory, deployment->packages, deployment->facts));
  if (!flags.dry_run) {
    for (const deploy::Step& step : steps) {
      Say(context, step.machine, Describe(step, deployment->packages));
      RETURN_IF_ERROR(deployment->deployer->Upgrade(step));
    }
    RETURN_IF_ERROR(deployment->deployer->AwaitAll());
  }
  PrintSteps(context, *deployment, steps, !flags.dry_run);
  return absl::OkStatus();
}

void AddDeployFlags(CLI::App* app, DeployFlags* flags) {
  AddRequired(app, "INVENTORY", &flags->inventory, "A TOML file with the machines");
  app->add_flag("--dry-run", flags->dry_run, "Print what differs, and change nothing");
  AddText(app, "--connect-timeout", &flags->connect_timeout, "TIME",
          "How long a machine may take to answer ssh; default 10s");
  AddText(app, "--install-timeout", &flags->install_timeout, "TIME",
          "How long a package may take to be copied, and to be\ninstalled; default 15m");
  AddText(app, "--join-timeout", &flags->join_timeout, "TIME",
          "How long workers have until they are part of the\ncluster; default 2m");
}

}  // namespace

void AddDeployCommands(CommandTree* tree, CLI::App* cluster) {
  auto flags = std::make_shared<DeployFlags>();
  CLI::App* deploy = tree->AddLeaf(
      cluster, "deploy", "Have machines be what an inventory says, by ssh",
      "  strata cluster deploy inventory.toml --dry-run\n"
      "  strata cluster deploy inventory.toml\n"
      "Installs packages, makes the authority on the coordinator's machine, has the others join,\n"
      "sets flags, starts services, and waits until all workers are there. What is as it should\n"
      "be stays untouched. `ssh` has to get to each machine as root without a question.",
      [flags](Context& context) { return RunDeploy(context, *flags); });
  AddDeployFlags(deploy, flags.get());
  auto upgrade_flags = std::make_shared<DeployFlags>();
  CLI::App* upgrade = tree->AddLeaf(
      cluster, "upgrade", "Replace the packages of an inventory's machines, one by one",
      "  strata cluster upgrade inventory.toml\n"
      "Each worker is drained, replaced, awaited and used again before the next one; the\n"
      "coordinator's machine is the last. Requests go on, or are replayed.",
      [upgrade_flags](Context& context) { return RunUpgrade(context, *upgrade_flags); });
  AddDeployFlags(upgrade, upgrade_flags.get());
  AddText(upgrade, "--drain-timeout", &upgrade_flags->drain_timeout, "TIME",
          "How long models have to leave a worker before it is\nreplaced; default 5m");
}

}  // namespace strata::cli
