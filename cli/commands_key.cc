// strata key.
#include <CLI/CLI.hpp>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/status.h"
#include "strata/v1/admin.pb.h"

namespace strata::cli {
namespace {

struct CreateFlags {
  std::string name;
  bool admin = false;
  std::optional<uint32_t> requests_in_flight;
  std::optional<uint32_t> requests_per_minute;
  std::optional<uint64_t> tokens_per_minute;
  int32_t max_priority = 0;
  bool guaranteed = false;
};

struct RevokeFlags {
  std::string id;
  bool cancel = false;
};

// "2026-11-22 18:40:05 UTC"; "never" for 0.
std::string Time(uint64_t unix_seconds) {
  if (unix_seconds == 0) {
    return "never";
  }
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

Json NullIfZero(uint64_t value) { return value == 0 ? Json(nullptr) : Json(value); }
std::string DashIfZero(uint64_t value) { return value == 0 ? "-" : std::to_string(value); }

Json KeyDocument(const v1::Key& key) {
  return {{"id", key.id()},
          {"name", key.name()},
          {"admin", key.admin()},
          {"created", NullIfZero(key.created())},
          {"last_used", NullIfZero(key.last_used())},
          {"revoked", NullIfZero(key.revoked())},
          {"requests_in_flight", NullIfZero(key.requests_in_flight())},
          {"requests_per_minute", NullIfZero(key.requests_per_minute())},
          {"tokens_per_minute", NullIfZero(key.tokens_per_minute())},
          {"max_priority", key.max_priority()},
          {"guaranteed", key.guaranteed()}};
}

absl::Status Create(const Context& context, const CreateFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  v1::CreateKeyRequest request;
  request.set_name(flags.name);
  request.set_admin(flags.admin);
  request.set_requests_in_flight(flags.requests_in_flight.value_or(0));
  request.set_requests_per_minute(flags.requests_per_minute.value_or(0));
  request.set_tokens_per_minute(flags.tokens_per_minute.value_or(0));
  request.set_max_priority(flags.max_priority);
  request.set_guaranteed(flags.guaranteed);
  ASSIGN_OR_RETURN(const v1::CreateKeyResponse made, client->CreateKey(request));
  if (context.json()) {
    Json document = KeyDocument(made.key());
    document["secret"] = made.secret();
    WriteJson(document, &context.out());
    return absl::OkStatus();
  }
  context.out() << made.secret() << "\n";
  context.err() << "made " << made.key().id() << "; its secret is shown only now. Requests "
                << (flags.admin ? "and the calls of operators want a key.\n" : "want a key.\n");
  return absl::OkStatus();
}

absl::Status ListKeys(const Context& context) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::ListKeysResponse keys, client->ListKeys());
  if (context.json()) {
    Json list = Json::array();
    for (const v1::Key& key : keys.keys()) list.push_back(KeyDocument(key));
    WriteJson({{"keys", std::move(list)}}, &context.out());
    return absl::OkStatus();
  }
  if (keys.keys().empty()) {
    context.out() << "There is no key, and none is asked for.\n";
    return absl::OkStatus();
  }
  Table table({"ID", "NAME", "STATE", "CREATED", "LAST USED", ">IN FLIGHT", ">REQUESTS/MIN",
               ">TOKENS/MIN", ">PRIORITY", "GUARANTEED"});
  for (const v1::Key& key : keys.keys()) {
    table.AddRow({key.id(), key.name().empty() ? "-" : key.name(),
                  key.revoked() != 0 ? "revoked"
                  : key.admin()      ? "admin"
                                     : "good",
                  Time(key.created()), Time(key.last_used()), DashIfZero(key.requests_in_flight()),
                  DashIfZero(key.requests_per_minute()), DashIfZero(key.tokens_per_minute()),
                  key.admin() ? "any" : std::to_string(key.max_priority()),
                  key.admin() || key.guaranteed() ? "yes" : "no"});
  }
  table.Print(&context.out());
  return absl::OkStatus();
}

absl::Status Revoke(const Context& context, const RevokeFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::RevokeKeyResponse revoked, client->RevokeKey(flags.id, flags.cancel));
  if (context.json()) {
    Json document = KeyDocument(revoked.key());
    document["cancelled"] = revoked.cancelled();
    WriteJson(document, &context.out());
    return absl::OkStatus();
  }
  context.out() << "revoked " << flags.id;
  if (flags.cancel) {
    context.out() << "; " << Counted(revoked.cancelled(), "request") << " cancelled";
  }
  context.out() << "\n";
  return absl::OkStatus();
}

void AddCreate(CommandTree* tree, CLI::App* group) {
  auto flags = std::make_shared<CreateFlags>();
  CLI::App* create = tree->AddLeaf(
      group, "create", "Make a key and print its secret, once",
      "  strata key create --name alice\n"
      "  strata key create --name batch --requests-in-flight 8 --tokens-per-minute 100000\n"
      "  strata key create --name me --admin\n"
      "Clients send the secret as `authorization: Bearer SECRET`; strata and the SDKs take it\n"
      "from STRATA_API_KEY. From the first key on, requests without one are refused. From the\n"
      "first one with --admin on, so are the commands of operators without such a key: model,\n"
      "node, key, status, ...",
      [flags](Context& context) { return Create(context, *flags); });
  AddText(create, "--name", &flags->name, "NAME", "For people: letters, digits and -_.@");
  create->add_flag("--admin", flags->admin, "It may administrate, too");
  AddCount(create, "--requests-in-flight", &flags->requests_in_flight, 1, 1u << 30,
           "Requests at a time; default no limit");
  AddCount(create, "--requests-per-minute", &flags->requests_per_minute, 1, 1u << 30,
           "Default no limit");
  AddCount(create, "--tokens-per-minute", &flags->tokens_per_minute, 1, uint64_t{1} << 40,
           "Of prompts and answers; default no limit. A request\nbegins while any are left; what "
           "it takes beyond them\ndelays the next ones");
  create
      ->add_option("--max-priority", flags->max_priority,
                   "The highest priority of its requests, which go before\nthose of lower ones; "
                   "default 0. Admin keys: any")
      ->type_name("N");
  create->add_flag("--guaranteed", flags->guaranteed,
                   "Its requests may ask never to be preempted; those of\nadmin keys may anyway");
}

void AddRevoke(CommandTree* tree, CLI::App* group) {
  auto flags = std::make_shared<RevokeFlags>();
  CLI::App* revoke = tree->AddLeaf(
      group, "revoke", "Make a key useless, at once and for good",
      "  strata key revoke key-1a2b3c4d\n"
      "  strata key revoke key-1a2b3c4d --cancel\n"
      "Once the last key is revoked, no request is taken until there is a new one. The last\n"
      "admin key cannot be revoked: make another one first.",
      [flags](Context& context) { return Revoke(context, *flags); });
  AddRequired(revoke, "ID", &flags->id, "The key's id, as `key list` shows it");
  revoke->add_flag("--cancel", flags->cancel,
                   "Cancel its requests in flight; else they end as they would");
}

}  // namespace

void AddKeyCommands(CommandTree* tree) {
  CLI::App* group = tree->AddGroup(
      "key", "API keys: who may send requests, and how many. While there is none, everybody may");
  AddCreate(tree, group);
  tree->AddLeaf(group, "list", "List the keys, revoked ones too", "  strata key list --json",
                ListKeys);
  AddRevoke(tree, group);
}

}  // namespace strata::cli
