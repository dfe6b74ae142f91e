#include "cli/diagnosis.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/doctor/examine_here.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata::cli {
namespace {

double WallClockS() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What others say of themselves.
std::string Shown(const std::string& text) {
  constexpr size_t kMaxBytes = 1024;
  return Printable(text, kMaxBytes);
}

std::string NodeName(const std::string& node) { return node.empty() ? "coordinator" : Shown(node); }

void Take(const v1::DiagnoseProgress& progress, double asked_s, v1::ClusterFacts* facts) {
  switch (progress.kind_case()) {
    case v1::DiagnoseProgress::kNode:
      *facts->add_nodes() = progress.node();
      break;
    case v1::DiagnoseProgress::kMachine:
      if (progress.machine().node().empty() && facts->clock_error_s() == 0) {
        constexpr double kLeastErrorS = 0.001;
        const double now_s = WallClockS();
        facts->set_clock_offset_s(progress.machine().unix_time_s() - (asked_s + now_s) / 2);
        facts->set_clock_error_s((now_s - asked_s) / 2 + kLeastErrorS);
      }
      *facts->add_machines() = progress.machine();
      break;
    case v1::DiagnoseProgress::kLink:
      *facts->add_links() = progress.link();
      break;
    case v1::DiagnoseProgress::kRefused:
      *facts->add_refused() = progress.refused();
      break;
    case v1::DiagnoseProgress::kNotLookedAt:
      facts->add_not_looked_at(progress.not_looked_at());
      break;
    default:
      break;
  }
}

}  // namespace

absl::StatusOr<v1::ClusterFacts> AskForFacts(const Context& context,
                                             const v1::DiagnoseRequest& request) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  v1::ClusterFacts facts;
  facts.set_client_version(STRATA_VERSION);
  constexpr std::chrono::seconds kGrace{30};  // For what is under way when its time is over.
  constexpr std::chrono::seconds kDefault{60};
  sdk::CallOptions call;
  call.timeout =
      kGrace + (request.timeout_ms() == 0 ? std::chrono::milliseconds(kDefault)
                                          : std::chrono::milliseconds(request.timeout_ms()));
  const double asked_s = WallClockS();
  absl::Status status = client->Diagnose(
      request,
      [&](const v1::DiagnoseProgress& progress) {
        if (progress.kind_case() == v1::DiagnoseProgress::kDoing) {
          context.err() << Shown(progress.doing()) << "\n";
          context.err().flush();
        } else {
          Take(progress, asked_s, &facts);
        }
      },
      call);
  if (absl::IsUnimplemented(status)) {
    return Error(absl::StatusCode::kUnimplemented, "COORDINATOR_TOO_OLD",
                 "the coordinator at " + context.coordinator() +
                     " has no doctor: it is older than this `strata`")
        .Hint("install this version there (docs/OPERATIONS.md, Upgrade)");
  }
  RETURN_IF_ERROR(status);
  return facts;
}

Json FindingsDocument(const std::vector<doctor::Finding>& findings, const v1::ClusterFacts& facts) {
  Json list = Json::array();
  for (const doctor::Finding& finding : findings) {
    list.push_back(
        {{"severity", finding.severity == doctor::Severity::kError ? "error" : "warning"},
         {"kind", finding.kind},
         {"node", NodeName(finding.node)},
         {"what", Shown(finding.what)},
         {"measured", Shown(finding.measured)},
         {"limit", Shown(finding.limit)},
         {"remedy", Shown(finding.remedy)}});
  }
  Json skipped = Json::array();
  for (const std::string& what : facts.not_looked_at()) skipped.push_back(Shown(what));
  return {{"findings", std::move(list)},
          {"processes", facts.machines_size()},
          {"links", facts.links_size()},
          {"not_looked_at", std::move(skipped)}};
}

void PrintFindings(const std::vector<doctor::Finding>& findings, std::ostream* out) {
  for (const doctor::Finding& finding : findings) {
    *out << (finding.severity == doctor::Severity::kError ? "error    " : "warning  ")
         << NodeName(finding.node) << "  " << finding.kind << ": " << Shown(finding.what);
    if (!finding.measured.empty()) {
      *out << " (" << Shown(finding.measured);
      if (!finding.limit.empty()) *out << "; limit " << Shown(finding.limit);
      *out << ")";
    }
    *out << "\n         do: " << Shown(finding.remedy) << "\n";
  }
}

absl::StatusOr<std::vector<std::string>> ConfigsToLookAt(const Context& context,
                                                         const std::string& given) {
  std::vector<std::string> configs = {given};
  if (given.empty()) {
    configs = ConfigsHere(context.ConfigDir());
  }
  if (configs.empty()) {
    return Error(absl::StatusCode::kNotFound, "NO_SERVICES",
                 "no service of Strata is installed here: /etc/strata has no file of flags")
        .Hint("give the file of one with --config");
  }
  for (const std::string& config : configs) {
    if (config.starts_with("/etc/strata/") && geteuid() != 0) {
      return Error(absl::StatusCode::kPermissionDenied, "WANTS_ROOT",
                   "this user does not see what the services of this machine see")
          .Hint("run it as root");
    }
  }
  return configs;
}

}  // namespace strata::cli
