#include "cli/doctor/examine_here.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/examination/boot_facts.h"
#include "common/examination/examine.h"
#include "common/platform/platform.h"
#include "common/platform/run_program.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigs[] = "/etc/strata";
constexpr char kStates[] = "/var/lib/strata/";
constexpr std::chrono::seconds kTimeout{30};
constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kSignalled = 128;  // And the signal's number: as shells tell it.

bool IsCoordinators(const std::string& config) {
  return fs::path(config).filename().string().find("coordinator") != std::string::npos;
}

std::string ProgramFor(const std::string& name) {
  std::error_code error;
  const fs::path own = fs::canonical(OwnProgram("strata"), error);
  const fs::path beside = own.parent_path() / name;
  return own.is_absolute() && fs::exists(beside, error) ? beside.string() : name;
}

// As its unit sets them.
std::vector<std::pair<std::string, std::string>> VariablesOf(const std::string& config) {
  if (UnitOfConfig(config).empty()) {
    return {};
  }
  const std::string stem = fs::path(config).stem().string();
  std::vector<std::pair<std::string, std::string>> variables = {
      {"STATE_DIRECTORY", kStates + stem}};
  if (stem.starts_with("worker-")) {
    variables.emplace_back("STRATA_WORKER_NAME", HostName() + stem.substr(stem.find('-')));
  }
  return variables;
}

bool StartsOrRuns(const std::string& config) {
  v1::BootFacts boot;
  boot.set_unit(UnitOfConfig(config));
  LookAtUnit("", "", &boot);
  std::error_code error;
  return boot.unit_enabled() || fs::exists("/sys/fs/cgroup/system.slice/" + boot.unit(), error);
}

std::string FirstLineOf(const std::string& text) {
  constexpr size_t kShown = 512;
  return Printable(text.substr(0, text.find('\n')), kShown);
}

// "strata-worker: FILE:3: there is no flag 'x'; see ..." without the program's name.
std::string WithoutProgram(const std::string& line, const std::string& program) {
  const std::string prefix = program + ": ";
  return line.starts_with(prefix) ? line.substr(prefix.size()) : line;
}

}  // namespace

std::vector<std::string> ConfigsHere(const std::string& user_config_dir) {
  std::vector<std::string> all;
  std::error_code error;
  for (fs::directory_iterator at(kConfigs, error), end; !error && at != end; at.increment(error)) {
    if (!UnitOfConfig(at->path().string()).empty()) all.push_back(at->path().string());
  }
  std::sort(all.begin(), all.end());
  std::vector<std::string> used = all;
  std::erase_if(used, [](const std::string& config) { return !StartsOrRuns(config); });
  if (used.empty()) {
    used = std::move(all);
  }
  const std::string own = user_config_dir + "/worker.toml";
  if (!user_config_dir.empty() && fs::exists(own, error)) {
    used.push_back(own);
  }
  return used;
}

v1::MachineFacts ExamineHere(const std::string& config) {
  const std::string program = IsCoordinators(config) ? "strata-coordinator" : "strata-worker";
  v1::MachineFacts failed;
  failed.set_program(program);
  failed.set_node(IsCoordinators(config) ? "" : fs::path(config).stem().string());
  const auto run = RunProgram(
      {ProgramFor(program), "examine", "--config", config},
      {.variables = VariablesOf(config), .timeout = kTimeout, .max_output_bytes = kMaxBytes});
  if (!run.ok()) {
    *failed.mutable_error() = DetailOf(run.status());
    failed.mutable_error()->set_hint("install the package " + program +
                                     ", or have $PATH lead to that program");
    return failed;
  }
  if (run->exit_status == 0) {
    auto facts = ParseFacts(run->out);
    if (facts.ok()) {
      return *std::move(facts);
    }
    *failed.mutable_error() = DetailOf(facts.status());
    failed.mutable_error()->set_hint("install the same version of it as of this `strata`");
    return failed;
  }
  const std::string said = WithoutProgram(FirstLineOf(run->error), program);
  if (run->exit_status == 2) {  // Wrong use: the flags.
    failed.mutable_boot()->set_config(config);
    failed.mutable_boot()->set_config_error(said);
    failed.mutable_boot()->set_unit(UnitOfConfig(config));
    return failed;
  }
  *failed.mutable_error() = DetailOf(
      Error(absl::StatusCode::kFailedPrecondition, "PROGRAM_FAILS",
            run->exit_status > kSignalled
                ? program + " was ended by signal " + std::to_string(run->exit_status - kSignalled)
                : program + " fails: " + said)
          .Hint("install the package of this machine's architecture again; `" + program +
                " --version` has to work"));
  return failed;
}

}  // namespace strata::cli
