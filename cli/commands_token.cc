// Tokens by which machines and people join, and joining as a person.
#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.h"
#include "cli/login.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/certificates/authority.h"
#include "common/certificates/join_token.h"
#include "common/joining/ask_to_join.h"
#include "common/names.h"
#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"
#include "strata/v1/joining.pb.h"

namespace strata::cli {
namespace {

struct TokenFlags {
  std::string role = "worker";
  std::string expires = "1h";
  std::string host;
  std::optional<uint32_t> uses;
};

absl::StatusOr<v1::CertificateRole> RoleOf(const std::string& word) {
  if (word == "worker") return v1::CERTIFICATE_ROLE_WORKER;
  if (word == "operator") return v1::CERTIFICATE_ROLE_OPERATOR;
  if (word == "client") return v1::CERTIFICATE_ROLE_CLIENT;
  return UsageError("ROLE is operator or client, not '" + Printable(word, 64) + "'");
}

absl::Status MakeToken(const Context& context, const TokenFlags& flags) {
  v1::CreateTokenRequest request;
  ASSIGN_OR_RETURN(const v1::CertificateRole role, RoleOf(flags.role));
  request.set_role(role);
  const auto expires = ParseDuration(flags.expires);
  if (!expires.ok() || *expires < std::chrono::seconds(1)) {
    return UsageError("--expires " + flags.expires + ": write a time like 30m or 24h");
  }
  request.set_expires_s(
      static_cast<uint64_t>(std::chrono::ceil<std::chrono::seconds>(*expires).count()));
  request.set_uses(flags.uses.value_or(1));
  request.set_host(flags.host);
  ASSIGN_OR_RETURN(const auto client, context.Connect());
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse made, client->CreateToken(request));
  const bool worker = role == v1::CERTIFICATE_ROLE_WORKER;
  const std::string command = (worker ? "strata-worker join " : "strata login ") + made.token();
  if (context.json()) {
    WriteJson({{"token", made.token()},
               {"command", command},
               {"role", flags.role},
               {"expires_at", made.expires_at()},
               {"uses", made.uses()}},
              &context.out());
    return absl::OkStatus();
  }
  context.out() << command << "\n";
  context.err() << "run this on the other machine within " << flags.expires << "; it is good for "
                << Counted(made.uses(), worker ? "machine" : "login") << "\n";
  return absl::OkStatus();
}

void AddTokenFlags(CLI::App* token, TokenFlags* flags) {
  AddText(token, "--expires", &flags->expires, "TIME",
          "Until when it is good, at most 720h; default 1h");
  AddCount(token, "--uses", &flags->uses, 1, 10'000, "How many may join by it; default 1");
  AddText(
      token, "--host", &flags->host, "HOST",
      "By which that machine dials the coordinator; default\nthe one it listens on, or the first "
      "of its certificate");
}

struct LoginFlags {
  std::string token;
  std::string name;
  std::string dir;
  bool discover = false;
};

absl::Status Login(const Context& context, const LoginFlags& flags) {
  std::string text = flags.token;
  if (text == "-") {
    std::getline(*context.environment().in, text);
  }
  auto token = ParseJoinToken(text);
  if (!token.ok()) {
    return UsageError(Describe(token.status()));
  }
  if (token->role() == v1::CERTIFICATE_ROLE_WORKER) {
    return UsageError("this token is for a worker: `strata-worker join` takes it");
  }
  const std::string dir = flags.dir.empty() ? context.ConfigDir() : flags.dir;
  if (dir.empty()) {
    return UsageError("there is no home folder to keep the certificate in: give --dir");
  }
  const std::string tls_dir = dir + "/tls";
  ASSIGN_OR_RETURN(const std::string key, KeyToJoinWith(tls_dir));
  v1::JoinRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeCertificateRequest(key));
  request.set_name(flags.name.empty() ? context.UserName() : flags.name);
  const auto say = [&context](const std::string& said) { context.err() << said; };
  ASSIGN_OR_RETURN(const v1::JoinResponse response, flags.discover
                                                        ? AskToJoinDiscovered(&*token, request, say)
                                                        : AskToJoin(*token, request));
  ASSIGN_OR_RETURN(const CertificateHolder holder, HolderOf(response.certificate()));
  RETURN_IF_ERROR(WriteLogin(
      dir, {.ca = response.authority(), .own = {.cert = response.certificate(), .key = key}},
      token->address()));
  const std::string role(CertificateRoleName(holder.role));
  if (context.json()) {
    WriteJson({{"cluster", response.cluster()},
               {"coordinator", token->address()},
               {"name", request.name()},
               {"role", role},
               {"tls_dir", tls_dir}},
              &context.out());
    return absl::OkStatus();
  }
  context.out() << "you are " << Printable(request.name()) << ", " << role << " of the cluster "
                << Printable(response.cluster()) << " at " << token->address() << "\n";
  if (flags.dir.empty()) {
    context.out()
        << "strata asks that coordinator from now on, unless it is told another; SDKs take "
           "STRATA_COORDINATOR and STRATA_TLS_DIR:\n";
  }
  context.out() << "  export STRATA_COORDINATOR=" << token->address()
                << " STRATA_TLS_DIR=" << tls_dir << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddNodeTokenCommand(CommandTree* tree, CLI::App* node) {
  auto flags = std::make_shared<TokenFlags>();
  CLI::App* token = tree->AddLeaf(
      node, "token", "Print the command by which another machine joins",
      "  strata node token\n"
      "  strata node token --expires 24h --uses 8\n"
      "The coordinator signs with the authority of its --authority. Whoever has the token may\n"
      "join with it until it lapses or is used up, whatever restarts meanwhile.",
      [flags](Context& context) { return MakeToken(context, *flags); });
  AddTokenFlags(token, flags.get());
}

void AddPersonTokenCommand(CommandTree* tree, CLI::App* cluster) {
  auto flags = std::make_shared<TokenFlags>();
  CLI::App* token = tree->AddLeaf(
      cluster, "token", "Print the command by which a person's machine gets a certificate",
      "  strata cluster token client\n"
      "  strata cluster token operator --expires 10m\n"
      "As `strata node token`, for people.",
      [flags](Context& context) {
        return flags->role == "worker" ? UsageError("`strata node token` makes those of workers")
                                       : MakeToken(context, *flags);
      });
  AddRequired(token, "ROLE", &flags->role, "operator or client");
  AddTokenFlags(token, flags.get());
}

void AddLoginCommand(CommandTree* tree) {
  auto flags = std::make_shared<LoginFlags>();
  CLI::App* login =
      tree->AddLeaf(tree->root(), "login", "Get a certificate of a cluster, by a token",
                    "  strata login strata-join-1.Cg...\n"
                    "`strata cluster token client` prints the whole command. The key never leaves "
                    "this machine. With\n"
                    "TOKEN - it is read from stdin, so that no other user of the machine sees it.",
                    [flags](Context& context) { return Login(context, *flags); });
  AddRequired(login, "TOKEN", &flags->token, "What `strata cluster token client` printed");
  AddText(login, "--name", &flags->name, "NAME", "Yours, in the certificate; default the user's");
  AddText(login, "--dir", &flags->dir, "DIR",
          "Gets the certificate; default strata in the\nconfiguration folder of the user");
  login->add_flag("--discover", flags->discover,
                  "Ask the local network for the coordinator, instead\nof the address in TOKEN");
}

}  // namespace strata::cli
