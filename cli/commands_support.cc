// strata support-bundle.
#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/diagnosis.h"
#include "cli/doctor/examine_here.h"
#include "cli/doctor/redact.h"
#include "cli/doctor/write_archive.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "common/doctor/findings.h"
#include "common/examination/examine.h"
#include "common/platform/run_program.h"
#include "common/status.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

constexpr uint32_t kLogLines = 2000;
constexpr size_t kMaxJournalBytes = size_t{2} << 20;

// "strata-support-20261129-230501": the folder in the archive, and its name.
std::string NameOfNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof(text), "strata-support-%Y%m%d-%H%M%S", &parts);
  return text;
}

// Texts on their way into an archive, each without what is secret.
class Bundle {
 public:
  explicit Bundle(const Context& context) {
    for (const char* name : {"STRATA_API_KEY", "HF_TOKEN"}) {
      const auto value =
          context.environment().variable ? context.environment().variable(name) : std::nullopt;
      if (value.has_value()) secrets_.push_back(*value);
    }
  }

  void Add(const std::string& path, const std::string& text) {
    files_.Add(path, Redact(text, secrets_));
  }
  void Add(const std::string& path, const Json& document) { Add(path, document.dump(2) + "\n"); }

  // A process's facts, log and metrics, each in a file.
  void AddMachine(const std::string& folder, v1::MachineFacts facts) {
    const std::string name = facts.node().empty() ? "coordinator" : "node-" + facts.node();
    std::string lines;
    for (const std::string& line : facts.log_lines()) lines += line + "\n";
    if (!lines.empty()) Add(folder + "log/" + name + ".log", lines);
    if (!facts.metrics().empty()) Add(folder + "metrics/" + name + ".txt", facts.metrics());
    facts.clear_log_lines();
    facts.clear_metrics();
    const Json document = Json::parse(FactsDocument(facts), nullptr, /*allow_exceptions=*/false);
    if (!document.is_discarded()) Add(folder + "facts/" + name + ".json", document);
  }

  std::vector<std::pair<std::string, std::string>> Take() { return std::move(files_).Take(); }

 private:
  std::vector<std::string> secrets_;
  ArchiveFiles files_;
};

Json VersionsOf(const v1::ClusterFacts& facts) {
  Json versions = {{"strata", STRATA_VERSION}};
  for (const v1::MachineFacts& machine : facts.machines()) {
    versions[machine.node().empty() ? "coordinator" : "node " + machine.node()] = machine.version();
  }
  return versions;
}

// All that the coordinator knows, or why it does not say.
absl::Status AddCluster(const Context& context, Bundle* bundle) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client->GetStatus());
  bundle->Add("status.json", StatusDocument(status));
  v1::DiagnoseRequest request;
  request.set_log_lines(kLogLines);
  request.set_metrics(true);
  ASSIGN_OR_RETURN(v1::ClusterFacts facts, AskForFacts(context, request));
  bundle->Add("doctor.json", FindingsDocument(doctor::Judge(facts), facts));
  bundle->Add("versions.json", VersionsOf(facts));
  for (v1::MachineFacts& machine : *facts.mutable_machines()) {
    bundle->AddMachine("", std::move(machine));
  }
  return absl::OkStatus();
}

// The services of this machine, as far as this user may.
void AddHere(const Context& context, Bundle* bundle) {
  const auto configs = ConfigsToLookAt(context, "");
  v1::ClusterFacts facts;
  std::vector<doctor::Finding> findings;
  for (const std::string& config : configs.ok() ? *configs : std::vector<std::string>()) {
    v1::MachineFacts machine = ExamineHere(config);
    for (doctor::Finding& finding : doctor::JudgeMachine(machine)) {
      findings.push_back(std::move(finding));
    }
    *facts.add_machines() = machine;
    bundle->AddMachine("here/", std::move(machine));
  }
  if (facts.machines_size() != 0) {
    bundle->Add("here/doctor.json", FindingsDocument(findings, facts));
  }
  constexpr std::chrono::seconds kTimeout{20};
  const auto journal = RunProgram({"journalctl", "--quiet", "--no-pager", "--output=short-iso",
                                   "--lines=" + std::to_string(kLogLines), "--unit=strata*"},
                                  {.timeout = kTimeout, .max_output_bytes = kMaxJournalBytes});
  if (journal.ok() && !journal->out.empty()) {
    bundle->Add("here/journal.log", journal->out);
  }
}

absl::Status MakeBundle(const Context& context, const std::string& output) {
  const std::string top = NameOfNow();
  const std::string path = output.empty() ? top + ".tar.gz" : output;
  Bundle bundle(context);
  const absl::Status asked = AddCluster(context, &bundle);
  if (IsUsageError(asked)) {
    return asked;
  }
  if (!asked.ok()) {
    context.err() << "the bundle is of this machine alone: " << Describe(asked) << "\n";
    bundle.Add("coordinator.txt", Describe(asked) + "\n");
  }
  AddHere(context, &bundle);
  const auto files = bundle.Take();
  RETURN_IF_ERROR(WriteArchive(path, top, files));
  if (context.json()) {
    Json names = Json::array();
    for (const auto& [name, text] : files) names.push_back(name);
    WriteJson({{"file", path}, {"files", std::move(names)}}, &context.out());
    return absl::OkStatus();
  }
  context.out() << path << " has\n" << files.front().second;
  context.err() << "look through it before you give it away; secrets were taken out, names and "
                   "addresses were not\n";
  return absl::OkStatus();
}

}  // namespace

void AddSupportBundleCommand(CommandTree* tree) {
  auto output = std::make_shared<std::string>();
  CLI::App* app = tree->AddLeaf(
      tree->root(), "support-bundle",
      "Put what helps to find a fault into one file, without secrets",
      "  strata support-bundle\n"
      "  strata support-bundle --output bundle.tar.gz\n"
      "Status, what `strata doctor` finds, versions, metrics, flags, and the ends of the logs, of\n"
      "the coordinator and of each worker; of this machine alone where no coordinator answers. It\n"
      "prints what is in it. Keys, tokens, prompts and answers are not, nor files of flags as "
      "they\n"
      "are; names and addresses of machines are.",
      [output](Context& context) { return MakeBundle(context, *output); });
  AddText(app, "--output", output.get(), "FILE",
          "Its name; default strata-support-DATE-TIME.tar.gz");
}

}  // namespace strata::cli
