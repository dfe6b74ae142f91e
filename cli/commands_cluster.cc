// strata cluster: a cluster's certificates, made without a coordinator.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/coordinator_service.h"
#include "cli/login.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/certificates/authority.h"
#include "common/certificates/authority_folder.h"
#include "common/certificates/renewal.h"
#include "common/certificates/tls_folder.h"
#include "common/joining/services.h"
#include "common/platform/platform.h"
#include "common/printable.h"
#include "common/rpc/address.h"
#include "common/shell_word.h"
#include "common/status.h"
#include "strata/v1/joining.pb.h"

namespace strata::cli {
namespace {

constexpr int64_t kDayS = 24 * 3600;
constexpr int64_t kAuthorityDays = 3650;
constexpr uint32_t kDefaultDays = 365;
constexpr char kDefaultFolder[] = "strata-cluster";
constexpr char kDefaultAuthority[] = "strata-cluster/authority";

struct Flags {
  std::string dir;
  std::string name;
  std::string role;
  std::string out;
  std::string hosts;
  std::optional<uint32_t> days;
  std::string worker;
  bool no_worker = false;
};

CertificateTerm Term(int64_t days) {
  return TermOfIssue(std::time(nullptr), days * kDayS + kBackdatedS);
}

// By what others on this network, and commands on this machine, dial it. Tokens have the first that
// is not of loopback: an address, since its name may be known on this machine alone.
std::vector<std::string> OwnHosts() {
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  for (std::string& host : MachineHosts(kMaxCertificateHosts - hosts.size())) {
    if (host != "localhost") {
      hosts.push_back(std::move(host));
    }
  }
  return hosts;
}

absl::StatusOr<std::vector<std::string>> HostsOf(const Flags& flags) {
  if (flags.hosts.empty()) {
    return std::vector<std::string>();
  }
  auto hosts = ParseNames(flags.hosts);
  return hosts.ok() ? hosts : UsageError(absl::StrCat("--hosts: ", hosts.status().message()));
}

// A key, a certificate for it, and the authorities that others are known by.
absl::StatusOr<TlsFolder> MakeFolder(const AuthoritySet& authority, const CertificateHolder& holder,
                                     const std::vector<std::string>& hosts, int64_t days) {
  TlsFolder folder = {.ca = authority.Trusted(), .own = {}};
  ASSIGN_OR_RETURN(folder.own.key, MakePrivateKey());
  ASSIGN_OR_RETURN(const std::string request, MakeCertificateRequest(folder.own.key));
  ASSIGN_OR_RETURN(folder.own.cert,
                   IssueCertificate(authority.signer, request, holder, hosts, Term(days)));
  return folder;
}

// "0f3a…", sixteen digits: enough to tell authorities apart by eye.
std::string Short(const std::string& fingerprint) { return fingerprint.substr(0, 16); }

// What `strata cluster init` makes, wherever it goes.
struct NewCluster {
  std::string name;
  std::vector<std::string> hosts;
  int64_t days = kDefaultDays;
  CertifiedKey authority;
  std::string fingerprint;
  TlsFolder coordinator, operators;
};

absl::StatusOr<NewCluster> MakeCluster(const Flags& flags) {
  NewCluster made;
  ASSIGN_OR_RETURN(made.hosts, HostsOf(flags));
  if (made.hosts.empty()) {
    made.hosts = OwnHosts();
  }
  made.name = flags.name.empty() ? "strata" : flags.name;
  made.days = flags.days.value_or(kDefaultDays);
  ASSIGN_OR_RETURN(made.authority, MakeAuthority(made.name, Term(kAuthorityDays)));
  ASSIGN_OR_RETURN(made.fingerprint, CertificateFingerprint(made.authority.cert));
  ASSIGN_OR_RETURN(
      made.coordinator,
      MakeFolder({made.authority}, {CertificateRole::kCoordinator, made.name, "coordinator"},
                 made.hosts, made.days));
  ASSIGN_OR_RETURN(made.operators,
                   MakeFolder({made.authority}, {CertificateRole::kOperator, made.name, "operator"},
                              {}, made.days));
  return made;
}

// As files alone, for whoever starts processes by hand.
absl::Status InitFiles(const Context& context, const NewCluster& made, const std::string& dir) {
  RETURN_IF_ERROR(WriteAuthority(dir + "/authority", made.authority));
  const std::string coordinator = dir + "/coordinator";
  const std::string own = dir + "/operator";
  RETURN_IF_ERROR(WriteTlsFolder(coordinator, made.coordinator));
  RETURN_IF_ERROR(WriteTlsFolder(own, made.operators));
  if (context.json()) {
    WriteJson({{"cluster", made.name},
               {"fingerprint", made.fingerprint},
               {"authority", dir + "/authority"},
               {"coordinator", coordinator},
               {"operator", own},
               {"hosts", made.hosts},
               {"days", made.days}},
              &context.out());
    return absl::OkStatus();
  }
  context.out() << "made the cluster " << Printable(made.name) << " in " << Printable(dir) << "\n"
                << "  authority/    signs certificates (" << Short(made.fingerprint)
                << "...): keep a copy of it elsewhere\n"
                << "  coordinator/  the coordinator's, for " << absl::StrJoin(made.hosts, ", ")
                << "\n"
                << "  operator/     yours\n"
                << "Start the coordinator here, and have it print what lets another machine join:\n"
                << "  strata-coordinator --listen 0.0.0.0:7070 --tls-dir " << ShellWord(coordinator)
                << " --authority " << ShellWord(dir + "/authority") << "\n"
                << "  strata --tls-dir " << ShellWord(own) << " node token\n";
  return absl::OkStatus();
}

// A token by which one worker may join within an hour: what a request without terms is for.
absl::StatusOr<std::string> MakeWorkerToken(sdk::Client& client) {
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse token,
                   client.CreateToken(v1::CreateTokenRequest()));
  return token.token();
}

bool IsLocal(const std::string& host) { return host == "localhost" || IsLoopback(host); }

// HOST:PORT of the coordinator's service.
std::string ServiceAt(const std::string& host) {
  return absl::StrCat(host.find(':') == host.npos ? host : "[" + host + "]", ":", ServicePort());
}

// Where commands of this machine dial the coordinator: by a name that its certificate has.
std::string LocalAddress(const std::vector<std::string>& hosts) {
  const bool loopback = std::find(hosts.begin(), hosts.end(), "127.0.0.1") != hosts.end();
  return ServiceAt(loopback ? "127.0.0.1" : hosts.front());
}

// Where the worker of this machine does: the others dial it by where it dials from.
std::string NetworkAddress(const std::vector<std::string>& hosts) {
  const auto found =
      std::find_if(hosts.begin(), hosts.end(), [](const auto& host) { return !IsLocal(host); });
  return ServiceAt(found != hosts.end() ? *found : hosts.front());
}

// Of this machine, without a token: whoever has the authority needs none.
absl::Status SetUpOwnWorker(const NewCluster& made, const std::string& name) {
  std::vector<std::string> hosts = MachineHosts(kMaxCertificateHosts);
  for (const std::string& host : made.hosts) {  // By which the others know this machine.
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
      hosts.push_back(host);
    }
  }
  hosts.resize(std::min(hosts.size(), kMaxCertificateHosts));
  ASSIGN_OR_RETURN(
      const TlsFolder folder,
      MakeFolder({made.authority}, {CertificateRole::kWorker, made.name, name}, hosts, made.days));
  return SetUpWorkerService(folder, name, NetworkAddress(made.hosts));
}

// As the packages' service, which runs from then on.
absl::Status InitService(const Context& context, const NewCluster& made, const Flags& flags) {
  if (context.ConfigDir().empty()) {
    return UsageError("there is no home folder for your certificate: set HOME, or give --dir");
  }
  RETURN_IF_ERROR(CheckServiceHasNoAuthority());
  const std::string address = LocalAddress(made.hosts);
  // First: whatever keeps the service from starting is then mended with a login.
  RETURN_IF_ERROR(WriteLogin(context.ConfigDir(), made.operators, address));
  // Whom others do not reach by any name of its certificate need not listen to them.
  const bool open = !std::all_of(made.hosts.begin(), made.hosts.end(), IsLocal);
  RETURN_IF_ERROR(SetUpService(made.authority, made.coordinator, open));
  sdk::ClientOptions options;
  options.coordinator = address;
  options.tls_dir = context.ConfigDir() + "/tls";
  ASSIGN_OR_RETURN(const auto client, sdk::Client::Connect(options));
  const std::string worker = flags.worker.empty() ? HostName() : flags.worker;
  const bool works = !flags.no_worker && HasWorkerService();
  if (works) {
    RETURN_IF_ERROR(SetUpOwnWorker(made, worker));
  }
  ASSIGN_OR_RETURN(const std::string token, MakeWorkerToken(*client));
  const std::string command = "strata-worker join " + token;
  if (context.json()) {
    WriteJson({{"cluster", made.name},
               {"fingerprint", made.fingerprint},
               {"authority", kServiceAuthority},
               {"coordinator", kServiceTls},
               {"operator", options.tls_dir},
               {"hosts", made.hosts},
               {"days", made.days},
               {"address", address},
               {"command", command}},
              &context.out());
    return absl::OkStatus();
  }
  context.out() << "made the cluster " << Printable(made.name) << ", and started strata-coordinator"
                << (works ? " and strata-worker, the node " + Printable(worker) : "") << "\n"
                << "  " << kServiceAuthority << "  signs certificates (" << Short(made.fingerprint)
                << "...): keep a copy of it elsewhere\n"
                << "  " << kServiceTls << "        the coordinator's, for "
                << absl::StrJoin(made.hosts, ", ") << "\n"
                << "  " << Printable(options.tls_dir) << "  yours: `strata` asks " << address
                << " from now on\n"
                << "On another machine, with its packages (one machine, within an hour; `strata "
                   "node token` makes more):\n"
                << "  apt install ./strata-worker_*.deb ./strata-cli_*.deb\n"
                << "  " << command << "\n"
                << "Then here:\n"
                << "  strata model add /usr/share/strata/models/recall --load throughput\n";
  return absl::OkStatus();
}

absl::Status Init(const Context& context, const Flags& flags) {
  const bool service = flags.dir.empty() && CanSetUpService();
  if ((flags.no_worker || !flags.worker.empty()) && !service) {
    return UsageError(
        "--worker and --no-worker are for root on a machine whose packages run the coordinator");
  }
  if (flags.no_worker && !flags.worker.empty()) {
    return UsageError("--worker and --no-worker exclude each other");
  }
  ASSIGN_OR_RETURN(const NewCluster made, MakeCluster(flags));
  return service ? InitService(context, made, flags)
                 : InitFiles(context, made, flags.dir.empty() ? kDefaultFolder : flags.dir);
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
  // That of a service, where `strata cluster init` made it so.
  const bool service = flags.dir.empty() && !ReadAuthority(kDefaultAuthority).ok() &&
                       ReadAuthority(ServiceAuthority()).ok();
  const std::string dir = flags.dir.empty() ? kDefaultFolder : flags.dir;
  ASSIGN_OR_RETURN(const AuthoritySet authority,
                   ReadAuthoritySet(service ? ServiceAuthority() : dir + "/authority"));
  ASSIGN_OR_RETURN(const std::string fingerprint, CertificateFingerprint(authority.signer.cert));
  ASSIGN_OR_RETURN(const std::string cluster, ClusterOf(authority.signer.cert));
  const std::string path = flags.out.empty() ? dir + "/" + flags.name : flags.out;
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
      "  strata cluster init --dir keys --hosts 10.0.0.1,coordinator.lan\n"
      "As root on a machine with the packages it sets up the coordinator's service and the\n"
      "worker's, and prints the command by which another machine joins. Else, and with --dir,\n"
      "it makes files and asks nobody. Who has what is in the authority's folder can make\n"
      "certificates of the cluster; nobody else can.",
      [flags](Context& context) { return Init(context, *flags); });
  AddDir(init, flags.get(), "Where it all goes, as files alone");
  AddText(init, "--name", &flags->name, "NAME",
          "The cluster's, which stands in its certificates;\ndefault strata");
  AddText(init, "--hosts", &flags->hosts, "HOST,...",
          "By which others dial the coordinator; default all\naddresses and the name of this "
          "machine");
  AddDays(init, flags.get());
  AddText(init, "--worker", &flags->worker, "NAME",
          "The node that this machine's worker is; default the\nhost's name");
  init->add_flag("--no-worker", flags->no_worker,
                 "Leave the worker's service of this machine alone");
}

void AddCertificate(CommandTree* tree, CLI::App* group) {
  auto flags = std::make_shared<Flags>();
  CLI::App* certificate = tree->AddLeaf(
      group, "certificate", "Make a key and a certificate, as a folder for --tls-dir",
      "  strata cluster certificate worker gpu-box --hosts 10.0.0.2,gpu-box.lan\n"
      "  strata cluster certificate client alice --out alice-tls\n"
      "A folder that it made before is replaced as a whole, by a renamed link; coordinators and\n"
      "workers that run take it within seconds.",
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
      "cluster", "A cluster's machines and certificates, with which nothing travels in plain text");
  AddInit(tree, group);
  AddCertificate(tree, group);
  AddAuthorityCommands(tree, group);
  AddPersonTokenCommand(tree, group);
  AddDeployCommands(tree, group);
}

}  // namespace strata::cli
