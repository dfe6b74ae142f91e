// strata doctor.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/diagnosis.h"
#include "cli/doctor/examine_here.h"
#include "cli/options.h"
#include "common/doctor/findings.h"
#include "common/status.h"
#include "common/units.h"

namespace strata::cli {
namespace {

constexpr int kExitFindings = 1;
constexpr int kExitCouldNotLook = 2;

struct DoctorFlags {
  bool local = false;
  std::string config;
  std::string timeout = "60s";
};

struct Diagnosis {
  std::vector<doctor::Finding> findings;
  v1::ClusterFacts facts;
};

absl::StatusOr<Diagnosis> LookHere(const Context& context, const DoctorFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<std::string> configs, ConfigsToLookAt(context, flags.config));
  Diagnosis diagnosis;
  for (const std::string& config : configs) {
    context.err() << "looking at " << config << "\n";
    *diagnosis.facts.add_machines() = ExamineHere(config);
    std::vector<doctor::Finding> found =
        doctor::JudgeMachine(diagnosis.facts.machines(diagnosis.facts.machines_size() - 1));
    diagnosis.findings.insert(diagnosis.findings.end(), std::make_move_iterator(found.begin()),
                              std::make_move_iterator(found.end()));
  }
  return diagnosis;
}

absl::StatusOr<Diagnosis> LookAtCluster(const Context& context, const DoctorFlags& flags) {
  const auto timeout = ParseDuration(flags.timeout);
  constexpr std::chrono::seconds kLeast{1};
  constexpr std::chrono::hours kMost{1};
  if (!timeout.ok() || *timeout < kLeast || *timeout > kMost) {
    return UsageError("--timeout " + flags.timeout + ": write a time from 1s to 1h");
  }
  v1::DiagnoseRequest request;
  request.set_timeout_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(*timeout).count()));
  Diagnosis diagnosis;
  ASSIGN_OR_RETURN(diagnosis.facts, AskForFacts(context, request));
  diagnosis.findings = doctor::Judge(diagnosis.facts);
  return diagnosis;
}

absl::Status Doctor(Context& context, const DoctorFlags& flags) {
  context.set_failed_code(kExitCouldNotLook);
  const bool local = flags.local || !flags.config.empty();
  ASSIGN_OR_RETURN(const Diagnosis diagnosis,
                   local ? LookHere(context, flags) : LookAtCluster(context, flags));
  const v1::ClusterFacts& facts = diagnosis.facts;
  if (!diagnosis.findings.empty()) {
    context.set_done_code(kExitFindings);
  } else if (!facts.not_looked_at().empty()) {
    context.set_done_code(kExitCouldNotLook);
  }
  if (context.json()) {
    WriteJson(FindingsDocument(diagnosis.findings, facts), &context.out());
    return absl::OkStatus();
  }
  PrintFindings(diagnosis.findings, &context.out());
  context.out() << (diagnosis.findings.empty() ? "nothing found"
                                               : Counted(diagnosis.findings.size(), "finding"))
                << "; looked at " << facts.machines_size()
                << (facts.machines_size() == 1 ? " process" : " processes") << " and "
                << Counted(static_cast<uint64_t>(facts.links_size()), "link") << "\n";
  for (const std::string& what : facts.not_looked_at()) {
    context.err() << "there was no time for " << what << ": give a longer --timeout\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddDoctorCommand(CommandTree* tree) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "doctor", "Look for what is wrong with the cluster or with this machine",
      "  strata doctor\n"
      "  strata doctor --local\n"
      "  strata doctor --config /etc/strata/worker.toml\n"
      "Of the cluster: ports in both directions between all members, clocks, certificates, "
      "memory,\n"
      "disks, instruction sets, links, versions, and what the next start of a machine finds. With\n"
      "--local the services of this machine, which need not run, and nobody is asked.\n"
      "Exit codes: 0 nothing was found, 1 something was, 2 it could not look.",
      [flags](Context& context) { return Doctor(context, *flags); });
  app->add_flag("--local", flags->local, "Look at this machine's services, running or not");
  AddText(
      app, "--config", &flags->config, "FILE",
      "At the one with this file of flags: a coordinator's\nif its name says so, else a worker's");
  AddText(app, "--timeout", &flags->timeout, "TIME", "For the whole cluster; default 60s");
}

}  // namespace strata::cli
