// strata cluster authority, revoke: whom a running cluster trusts.
#include <CLI/CLI.hpp>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/printable.h"
#include "common/status.h"
#include "strata/v1/certificates.pb.h"

namespace strata::cli {
namespace {

struct Words {
  std::string step;
  std::string role;
  std::string name;
};

absl::StatusOr<v1::AuthorityStep> StepOf(const std::string& word) {
  if (word == "status") return v1::AUTHORITY_STEP_UNSPECIFIED;
  if (word == "rotate") return v1::AUTHORITY_STEP_ROTATE;
  if (word == "switch") return v1::AUTHORITY_STEP_SWITCH;
  if (word == "finish") return v1::AUTHORITY_STEP_FINISH;
  return UsageError("STEP is status, rotate, switch or finish, not '" + Printable(word, 64) + "'");
}

const char* PhaseName(v1::AuthorityPhase phase) {
  switch (phase) {
    case v1::AUTHORITY_PHASE_SETTLED:
      return "settled";
    case v1::AUTHORITY_PHASE_SPREADING:
      return "spreading";
    case v1::AUTHORITY_PHASE_RENEWING:
      return "renewing";
    default:
      return "unknown";
  }
}

// What there is, and the next command.
std::string Explained(const v1::AuthorityState& state, bool all_followed) {
  const std::string signer = state.signer_sha256().substr(0, 16) + "...";
  const std::string other = state.other_sha256().substr(0, 16) + "...";
  switch (state.phase()) {
    case v1::AUTHORITY_PHASE_SPREADING:
      return "authority " + signer + " signs; members learn to trust the next one, " + other +
             (all_followed ? "; all do: `strata cluster authority switch` has it sign" : "");
    case v1::AUTHORITY_PHASE_RENEWING:
      return "authority " + signer + " signs; the previous one, " + other + ", is still trusted" +
             (all_followed ? "; nobody needs it: `strata cluster authority finish` ends that"
                           : "; members get new certificates");
    default:
      return "authority " + signer + " signs, and it alone is trusted";
  }
}

Json Document(const v1::AuthorityState& state) {
  Json followers = Json::array();
  for (const v1::AuthorityFollower& one : state.followers()) {
    followers.push_back({{"name", one.name()},
                         {"followed", one.followed()},
                         {"alive", one.alive()},
                         {"renewable", one.renewable()}});
  }
  return {{"phase", PhaseName(state.phase())},
          {"signer", state.signer_sha256()},
          {"other", state.other_sha256()},
          {"expires_at", state.expires_at()},
          {"members", std::move(followers)}};
}

absl::Status ChangeAuthority(const Context& context, const Words& words) {
  v1::ChangeAuthorityRequest request;
  ASSIGN_OR_RETURN(const v1::AuthorityStep step, StepOf(words.step));
  request.set_step(step);
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::AuthorityState state, client->ChangeAuthority(request));
  if (step != v1::AUTHORITY_STEP_UNSPECIFIED) {
    context.FollowAuthority();
  }
  if (context.json()) {
    WriteJson(Document(state), &context.out());
    return absl::OkStatus();
  }
  bool all = true;
  Table table({"MEMBER", "FOLLOWED"});
  for (const v1::AuthorityFollower& one : state.followers()) {
    all = all && one.followed();
    table.AddRow({one.name().empty() ? "coordinator" : one.name(),
                  one.followed()     ? "yes"
                  : !one.alive()     ? "no, it is not there"
                  : !one.renewable() ? "no, and its certificate cannot be renewed"
                                     : "not yet"});
  }
  context.out() << Explained(state, all) << "\n";
  table.Print(&context.out(), "  ");
  return absl::OkStatus();
}

absl::Status RevokeHolder(const Context& context, const Words& words) {
  v1::RevokeCertificatesRequest request;
  request.set_role(words.role);
  request.set_name(words.name);
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::RevokeCertificatesResponse revoked,
                   client->RevokeCertificates(request));
  if (context.json()) {
    WriteJson(
        Json{{"role", words.role}, {"name", words.name}, {"ended_calls", revoked.ended_calls()}},
        &context.out());
    return absl::OkStatus();
  }
  context.out() << "no certificate that the " << words.role << " " << Printable(words.name)
                << " has is accepted any more; " << Counted(revoked.ended_calls(), "call")
                << " ended\n";
  return absl::OkStatus();
}

}  // namespace

void AddAuthorityCommands(CommandTree* tree, CLI::App* cluster) {
  auto words = std::make_shared<Words>();
  CLI::App* authority = tree->AddLeaf(
      cluster, "authority", "Change the authority of a running cluster, step by step",
      "  strata cluster authority status\n"
      "  strata cluster authority rotate\n"
      "rotate makes the next authority, switch has it sign, finish ends the trust in the previous\n"
      "one. Each waits until all members have followed the one before, and names who has not.\n"
      "People's certificates follow when they use strata between rotate and finish.",
      [words](Context& context) { return ChangeAuthority(context, *words); });
  AddRequired(authority, "STEP", &words->step, "status, rotate, switch or finish");
  CLI::App* revoke = tree->AddLeaf(
      cluster, "revoke", "Refuse the certificates that somebody has",
      "  strata cluster revoke client alice\n"
      "  strata cluster revoke worker gpu-box\n"
      "What they have open ends. Who gets a certificate of that name later is let in: make a\n"
      "token by `strata cluster token client` or `strata node token`. `strata node remove NODE`\n"
      "revokes those of a worker too.",
      [words](Context& context) { return RevokeHolder(context, *words); });
  AddRequired(revoke, "ROLE", &words->role, "worker, operator or client");
  AddRequired(revoke, "NAME", &words->name, "Whose they are");
}

}  // namespace strata::cli
