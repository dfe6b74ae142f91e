// strata status.
#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/tables.h"
#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

// Beyond so many that are lost, `status` says how many more there are.
constexpr int kLostShown = 3;

// Those that are there, and the first of those that are not.
void PrintSomeNodes(const google::protobuf::RepeatedPtrField<v1::Node>& nodes, std::ostream* out) {
  google::protobuf::RepeatedPtrField<v1::Node> shown;
  int lost = 0;
  for (const v1::Node& node : nodes) {
    if (node.state() != "lost" || ++lost <= kLostShown) {
      *shown.Add() = node;
    }
  }
  PrintNodes(shown, "  ", out);
  if (lost > kLostShown) {
    *out << "  and " << lost - kLostShown << " more that are lost; `strata node list` has all\n";
  }
}

void PrintWaits(const google::protobuf::RepeatedPtrField<v1::Wait>& waits, std::ostream* out) {
  const auto seconds = [](double s) {
    return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(s * 1e3)));
  };
  for (const v1::Wait& wait : waits) {
    *out << "  " << wait.what() << ", for " << seconds(wait.for_s());
    if (wait.limit_s() > 0) {
      *out << " of " << seconds(wait.limit_s()) << " at most";
    }
    *out << "\n";
  }
}

void PrintStatus(const Context& context, const v1::GetStatusResponse& status) {
  std::ostream& out = context.out();
  out << "Strata " << Printable(status.version()) << " at " << context.coordinator() << ", up "
      << FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(status.uptime_s() * 1e3)));
  if (!status.http_address().empty()) {
    out << ", HTTP on " << status.http_address();
  }
  out << "\n\nNodes\n";
  if (status.nodes().empty()) {
    out << "  none yet; start one with `strata-worker --coordinator " << context.coordinator()
        << "`\n";
  } else {
    PrintSomeNodes(status.nodes(), &out);
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
  if (!status.waits().empty()) {
    out << "\nWaiting for\n";
    PrintWaits(status.waits(), &out);
  }
  if (status.problems().empty()) {
    out << "\nNothing is wrong.\n";
    return;
  }
  out << "\nProblems\n";
  for (const v1::Problem& problem : status.problems()) {
    out << "  ! " << Printable(problem.what()) << "\n";
    if (!problem.do_().empty()) {
      out << "    do: " << Printable(problem.do_()) << "\n";
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
