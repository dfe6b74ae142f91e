// strata session.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/options.h"
#include "cli/tables.h"
#include "common/limits.h"
#include "common/status.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

absl::Status ListSessions(const Context& context) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::ListSessionsResponse sessions, client->ListSessions());
  if (context.json()) {
    WriteJson(SessionList(sessions), &context.out());
  } else if (sessions.sessions().empty()) {
    context.out() << "No request is in flight.\n";
  } else {
    PrintSessions(sessions.sessions(), "", &context.out());
  }
  return absl::OkStatus();
}

constexpr char kNoKey[] = "-";

struct CancelFlags {
  std::string id;
  std::string key;
};

absl::Status Cancel(const Context& context, const CancelFlags& flags) {
  const std::string& id = flags.id;
  if (id.size() > kMaxRequestIdBytes ||
      !std::all_of(id.begin(), id.end(), [](char c) { return c >= 0x20 && c < 0x7F; })) {
    return UsageError("a request's id is of 1 to " + std::to_string(kMaxRequestIdBytes) +
                      " printable ASCII characters");
  }
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  const std::string key = flags.key == kNoKey ? "" : flags.key;
  RETURN_IF_ERROR(flags.key.empty() ? client->CancelSession(id) : client->CancelSessionOf(key, id));
  if (context.json()) {
    WriteJson(Json{{"cancelled", id}}, &context.out());
  } else {
    context.out() << "cancelled " << id << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddSessionCommands(CommandTree* tree) {
  CLI::App* group = tree->AddGroup("session", "Requests in flight");
  tree->AddLeaf(group, "list", "List the requests in flight", "  strata session list --json",
                ListSessions);
  auto flags = std::make_shared<CancelFlags>();
  CLI::App* cancel = tree->AddLeaf(group, "cancel", "End a request on every worker",
                                   "  strata session cancel my-request",
                                   [flags](Context& context) { return Cancel(context, *flags); });
  AddRequired(cancel, "ID", &flags->id, "The request's id, as `session list` shows it");
  AddText(cancel, "--key", &flags->key, "KEY",
          "The id of the API key whose request it is, where\nseveral have one of this id; -: sent "
          "without one");
}

}  // namespace strata::cli
