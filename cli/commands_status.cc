// strata status.
#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/tables.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

void PrintStatus(const Context& context, const v1::GetStatusResponse& status) {
  std::ostream& out = context.out();
  out << "Strata " << status.version() << " at " << context.coordinator() << ", up "
      << FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(status.uptime_s() * 1e3)));
  if (!status.http_address().empty()) {
    out << ", HTTP on " << status.http_address();
  }
  out << "\n\nNodes\n";
  if (status.nodes().empty()) {
    out << "  none yet; start one with `strata-worker --coordinator " << context.coordinator()
        << "`\n";
  } else {
    PrintNodes(status.nodes(), "  ", &out);
  }
  out << "\nModels\n";
  if (status.models().empty()) {
    out << "  none yet; register one with `strata model add PATH`\n";
  } else {
    PrintModels(status.models(), "  ", &out);
  }
  if (!status.sessions().empty()) {
    out << "\nRequests in flight\n";
    PrintSessions(status.sessions(), "  ", &out);
  }
  if (!status.kv().empty()) {
    out << "\nKV memory, pages of 16 tokens\n";
    PrintKv(status.kv(), "  ", &out);
  }
  if (status.problems().empty()) {
    out << "\nNothing is wrong.\n";
    return;
  }
  out << "\nProblems\n";
  for (const v1::Problem& problem : status.problems()) {
    out << "  ! " << problem.what() << "\n";
    if (!problem.do_().empty()) {
      out << "    do: " << problem.do_() << "\n";
    }
  }
}

}  // namespace

void AddStatusCommand(CommandTree* tree) {
  tree->AddLeaf(tree->root(), "status", "The cluster at a glance, and what mends what is wrong",
                "  strata status\n  strata --coordinator 192.168.1.10:7070 status --json",
                [](Context& context) -> absl::Status {
                  ASSIGN_OR_RETURN(const auto client, context.Connect());
                  ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client->GetStatus());
                  if (context.json()) {
                    WriteJson(StatusDocument(status), &context.out());
                  } else {
                    PrintStatus(context, status);
                  }
                  return absl::OkStatus();
                });
}

}  // namespace strata::cli
