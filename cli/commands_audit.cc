// strata audit.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/audit.pb.h"

namespace strata::cli {
namespace {

constexpr uint32_t kDefaultEntries = 100;
constexpr uint32_t kMostAtOnce = 1000;  // ListAudit's.

struct AuditFlags {
  std::string since;
  std::string who;
  std::optional<uint32_t> limit;
};

// "2026-11-22 18:40:05 UTC".
std::string AuditTime(uint64_t time_ms) {
  const auto seconds = static_cast<std::time_t>(time_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

std::string AuditOutcome(const v1::AuditEntry& entry) {
  std::string outcome = entry.outcome().empty() ? "under way" : entry.outcome();
  if (entry.refused()) outcome = "refused: " + outcome;
  if (entry.times() > 1) outcome += ", " + std::to_string(entry.times()) + " times or more";
  return outcome;
}

Json AuditDocument(const v1::AuditEntry& entry) {
  return {{"number", entry.number()},
          {"time_ms", entry.time_ms()},
          {"who", entry.who()},
          {"address", entry.address()},
          {"call", entry.call()},
          {"object", entry.object()},
          {"outcome", entry.outcome().empty() ? Json(nullptr) : Json(entry.outcome())},
          {"refused", entry.refused()},
          {"times", entry.times()}};
}

absl::Status ShowAudit(const Context& context, const AuditFlags& flags) {
  v1::ListAuditRequest request;
  if (!flags.since.empty()) {
    const auto since = ParseDuration(flags.since);
    if (!since.ok()) {
      return UsageError("--since " + flags.since + ": write a time like 30m or 24h");
    }
    const auto from = std::chrono::system_clock::now().time_since_epoch() - *since;
    request.set_since_ms(static_cast<uint64_t>(
        std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(from).count())));
  }
  request.set_who(flags.who);
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  uint32_t left = flags.limit.value_or(kDefaultEntries);
  Json list = Json::array();
  Table table({"TIME", "WHO", "CALL", "OBJECT", "OUTCOME"});
  while (left > 0) {
    const uint32_t asked = std::min(left, kMostAtOnce);
    request.set_limit(asked);
    ASSIGN_OR_RETURN(const v1::ListAuditResponse part, client->ListAudit(request));
    for (const v1::AuditEntry& entry : part.entries()) {
      list.push_back(AuditDocument(entry));
      table.AddRow(
          {AuditTime(entry.time_ms()),
           entry.address().empty() ? entry.who() : entry.who() + " from " + entry.address(),
           entry.call(), entry.object().empty() ? "-" : entry.object(), AuditOutcome(entry)});
      request.set_before(entry.number());
    }
    if (part.entries().size() < static_cast<int>(asked)) {
      break;
    }
    left -= asked;
  }
  if (context.json()) {
    WriteJson({{"entries", std::move(list)}}, &context.out());
  } else if (table.empty()) {
    context.out() << "Nothing is recorded"
                  << (flags.since.empty() && flags.who.empty() ? ".\n" : " of that.\n");
  } else {
    table.Print(&context.out());
  }
  return absl::OkStatus();
}

}  // namespace

void AddAuditCommand(CommandTree* tree) {
  auto flags = std::make_shared<AuditFlags>();
  CLI::App* audit = tree->AddLeaf(
      tree->root(), "audit", "Who changed what of the cluster, newest first",
      "  strata audit --since 24h\n"
      "  strata audit --who anna --json\n"
      "Every call that changes something is recorded before it is answered, whoever makes it;\n"
      "so are refusals. The coordinator keeps the newest --audit-entries.",
      [flags](Context& context) { return ShowAudit(context, *flags); });
  AddText(audit, "--since", &flags->since, "TIME", "Only what is not older, as in 1h; default all");
  AddText(audit, "--who", &flags->who, "TEXT",
          "Only those with this in the name of certificate or key,\nor in the address");
  AddCount(audit, "--limit", &flags->limit, 1, 1'000'000, "At most so many; default 100");
}

}  // namespace strata::cli
