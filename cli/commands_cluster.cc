// strata cluster: a cluster's certificates, made without a coordinator.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/certificates/authority.h"
#include "common/certificates/tls_folder.h"
#include "common/names.h"
#include "common/platform/addresses.h"
#include "common/platform/platform.h"
#include "common/printable.h"
#include "common/shell_word.h"
#include "common/status.h"

namespace strata::cli {
namespace {

constexpr int64_t kDayS = 24 * 3600;
constexpr int64_t kAuthorityDays = 3650;
constexpr uint32_t kDefaultDays = 365;
// Clocks of the other machines may be behind.
constexpr int64_t kBackdatedS = 3600;
constexpr char kDefaultFolder[] = "strata-cluster";

struct Flags {
  std::string dir = kDefaultFolder;
  std::string name;
  std::string role;
  std::string out;
  std::string hosts;
  std::optional<uint32_t> days;
};

CertificateTerm Term(int64_t days) {
  const auto now_s = static_cast<int64_t>(std::time(nullptr));
  return {now_s - kBackdatedS, now_s + days * kDayS};
}

// By what others on this network, and commands on this machine, dial it.
std::vector<std::string> OwnHosts() {
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  const std::string own = HostName();
  if (CheckNodeName(own).ok() && own != "localhost") {
    hosts.push_back(own);
  }
  for (std::string& address : MachineAddresses()) {
    hosts.push_back(std::move(address));
  }
  hosts.resize(std::min(hosts.size(), kMaxCertificateHosts));
  return hosts;
}

absl::StatusOr<std::vector<std::string>> HostsOf(const Flags& flags) {
  if (flags.hosts.empty()) {
    return std::vector<std::string>();
  }
  auto hosts = ParseNames(flags.hosts);
  return hosts.ok() ? hosts : UsageError(absl::StrCat("--hosts: ", hosts.status().message()));
}

// A key, a certificate for it, and the authority that others know it by.
absl::StatusOr<TlsFolder> MakeFolder(const CertifiedKey& authority, const CertificateHolder& holder,
                                     const std::vector<std::string>& hosts, int64_t days) {
  TlsFolder folder = {.ca = authority.cert, .own = {}};
  ASSIGN_OR_RETURN(folder.own.key, MakePrivateKey());
  ASSIGN_OR_RETURN(const std::string request, MakeCertificateRequest(folder.own.key));
  ASSIGN_OR_RETURN(folder.own.cert,
                   IssueCertificate(authority, request, holder, hosts, Term(days)));
  return folder;
}

// "0f3a…", sixteen digits: enough to tell authorities apart by eye.
std::string Short(const std::string& fingerprint) { return fingerprint.substr(0, 16); }

absl::Status Init(const Context& context, const Flags& flags) {
  ASSIGN_OR_RETURN(std::vector<std::string> hosts, HostsOf(flags));
  if (hosts.empty()) {
    hosts = OwnHosts();
  }
  const std::string name = flags.name.empty() ? "strata" : flags.name;
  const int64_t days = flags.days.value_or(kDefaultDays);
  ASSIGN_OR_RETURN(const CertifiedKey authority, MakeAuthority(name, Term(kAuthorityDays)));
  ASSIGN_OR_RETURN(const std::string fingerprint, CertificateFingerprint(authority.cert));
  ASSIGN_OR_RETURN(
      const TlsFolder coordinators,
      MakeFolder(authority, {CertificateRole::kCoordinator, name, "coordinator"}, hosts, days));
  ASSIGN_OR_RETURN(const TlsFolder operators,
                   MakeFolder(authority, {CertificateRole::kOperator, name, "operator"}, {}, days));
  RETURN_IF_ERROR(WriteAuthority(flags.dir + "/authority", authority));
  const std::string coordinator = flags.dir + "/coordinator";
  const std::string own = flags.dir + "/operator";
  RETURN_IF_ERROR(WriteTlsFolder(coordinator, coordinators));
  RETURN_IF_ERROR(WriteTlsFolder(own, operators));
  if (context.json()) {
    WriteJson({{"cluster", name},
               {"fingerprint", fingerprint},
               {"authority", flags.dir + "/authority"},
               {"coordinator", coordinator},
               {"operator", own},
               {"hosts", hosts},
               {"days", days}},
              &context.out());
    return absl::OkStatus();
  }
  context.out() << "made the cluster " << Printable(name) << " in " << Printable(flags.dir) << "\n"
                << "  authority/    signs certificates (" << Short(fingerprint)
                << "...): keep a copy of it elsewhere\n"
                << "  coordinator/  the coordinator's, for " << absl::StrJoin(hosts, ", ") << "\n"
                << "  operator/     yours\n"
                << "Start the coordinator here, and have it print what lets another machine join:\n"
                << "  strata-coordinator --listen 0.0.0.0:7070 --tls-dir " << ShellWord(coordinator)
                << " --authority " << ShellWord(flags.dir + "/authority") << "\n"
                << "  strata --tls-dir " << ShellWord(own) << " node token\n";
  return absl::OkStatus();
}

absl::StatusOr<CertificateRole> RoleOf(const std::string& word) {
  for (const CertificateRole role : kCertificateRoles) {
    if (word == CertificateRoleName(role)) {
      return role;
    }
  }
  return UsageError(absl::StrCat("ROLE is coordinator, worker, operator or client, not '",
                                 Printable(word, 64), "'"));
}

absl::Status Certificate(const Context& context, const Flags& flags) {
  ASSIGN_OR_RETURN(const CertificateRole role, RoleOf(flags.role));
  ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOf(flags));
  const bool serves = role == CertificateRole::kWorker || role == CertificateRole::kCoordinator;
  if (serves == hosts.empty()) {
    return UsageError(serves ? absl::StrCat("a ", flags.role,
                                            " is dialled by others: --hosts is what they dial, as "
                                            "10.0.0.2 or gpu-box.lan")
                             : absl::StrCat("nobody dials a ", flags.role, ": leave --hosts out"));
  }
  ASSIGN_OR_RETURN(const CertifiedKey authority, ReadAuthority(flags.dir + "/authority"));
  ASSIGN_OR_RETURN(const std::string fingerprint, CertificateFingerprint(authority.cert));
  ASSIGN_OR_RETURN(const std::string cluster, ClusterOf(authority.cert));
  const std::string path = flags.out.empty() ? flags.dir + "/" + flags.name : flags.out;
  const int64_t days = flags.days.value_or(kDefaultDays);
  ASSIGN_OR_RETURN(const TlsFolder made,
                   MakeFolder(authority, {role, cluster, flags.name}, hosts, days));
  RETURN_IF_ERROR(WriteTlsFolder(path, made));
  if (context.json()) {
    WriteJson({{"cluster", cluster},
               {"role", flags.role},
               {"name", flags.name},
               {"folder", path},
               {"fingerprint", fingerprint},
               {"hosts", hosts},
               {"days", days}},
              &context.out());
    return absl::OkStatus();
  }
  context.out() << "made " << Printable(path) << " for the " << flags.role << " "
                << Printable(flags.name) << " of " << Printable(cluster) << "; it ends in " << days
                << " days.\nCopy what is in it to that machine, readable there by its user alone, "
                   "and give it as --tls-dir";
  if (role == CertificateRole::kWorker) {
    context.out() << ":\n  strata-worker --coordinator HOST:7070 --name " << ShellWord(flags.name)
                  << " --tls-dir FOLDER";
  }
  context.out() << "\n";
  return absl::OkStatus();
}

void AddDir(CLI::App* app, Flags* flags, const std::string& help) {
  AddText(app, "--dir", &flags->dir, "DIR",
          absl::StrCat(help, "; default\n", kDefaultFolder, ", here"));
}

void AddDays(CLI::App* app, Flags* flags) {
  AddCount(app, "--days", &flags->days, 1, kAuthorityDays,
           absl::StrCat("How long certificates are valid; default ", kDefaultDays));
}

void AddInit(CommandTree* tree, CLI::App* group) {
  auto flags = std::make_shared<Flags>();
  CLI::App* init = tree->AddLeaf(
      group, "init", "Make a cluster's authority, and certificates for coordinator and operator",
      "  strata cluster init --name home\n"
      "  strata cluster init --dir /etc/strata/cluster --hosts 10.0.0.1,coordinator.lan\n"
      "No coordinator is asked: it works on the files of this machine alone. Who has what is\n"
      "in DIR/authority can make certificates of the cluster; nobody else can.",
      [flags](Context& context) { return Init(context, *flags); });
  AddDir(init, flags.get(), "Where it all goes");
  AddText(init, "--name", &flags->name, "NAME",
          "The cluster's, which stands in its certificates;\ndefault strata");
  AddText(init, "--hosts", &flags->hosts, "HOST,...",
          "By which others dial the coordinator; default all\naddresses and the name of this "
          "machine");
  AddDays(init, flags.get());
}

void AddCertificate(CommandTree* tree, CLI::App* group) {
  auto flags = std::make_shared<Flags>();
  CLI::App* certificate = tree->AddLeaf(
      group, "certificate", "Make a key and a certificate, as a folder for --tls-dir",
      "  strata cluster certificate worker gpu-box --hosts 10.0.0.2,gpu-box.lan\n"
      "  strata cluster certificate client alice --out alice-tls\n"
      "A folder that it made before is replaced as a whole, by a renamed link; processes read it\n"
      "when they start.",
      [flags](Context& context) { return Certificate(context, *flags); });
  AddRequired(certificate, "ROLE", &flags->role, "coordinator, worker, operator or client");
  AddNodeName(certificate, "NAME", &flags->name, "Whose it is; a worker's is the node's name");
  AddDir(certificate, flags.get(), "Where `strata cluster init` made the authority");
  AddText(certificate, "--hosts", &flags->hosts, "HOST,...",
          "By which others dial it: addresses and names; for\ncoordinators and workers alone");
  AddText(certificate, "--out", &flags->out, "FOLDER", "Where to; default DIR/NAME");
  AddDays(certificate, flags.get());
}

}  // namespace

void AddClusterCommands(CommandTree* tree) {
  CLI::App* group = tree->AddGroup(
      "cluster", "A cluster's certificates: with them nothing travels in plain text");
  AddInit(tree, group);
  AddCertificate(tree, group);
  AddPersonTokenCommand(tree, group);
}

}  // namespace strata::cli
