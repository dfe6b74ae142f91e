#include "worker/joining/join.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/certificates/authority.h"
#include "common/certificates/join_token.h"
#include "common/certificates/tls_folder.h"
#include "common/joining/ask_to_join.h"
#include "common/joining/services.h"
#include "common/names.h"
#include "common/platform/platform.h"
#include "common/shell_word.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr char kUnit[] = "strata-worker.service";
constexpr char kUnitsConfig[] = "/etc/strata/worker.toml";
constexpr char kFileHint[] =
    "run this as root, or give --config-dir a folder that this user may write to";

std::string DefaultConfigDir(const GetEnvFn& get_env) {
  const char* home = get_env("HOME");
  return geteuid() == 0 || home == nullptr ? "/etc/strata" : std::string(home) + "/.config/strata";
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "strata-worker: %s\n", Describe(status).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace

absl::StatusOr<Joined> JoinCluster(const JoinOptions& options) {
  ASSIGN_OR_RETURN(v1::JoinToken token, ParseJoinToken(options.token));
  if (token.role() != v1::CERTIFICATE_ROLE_WORKER) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN",
                 "this token is for a person, not for a worker");
  }
  RETURN_IF_ERROR(CheckNodeName(options.name));
  Joined joined;
  joined.config = options.config_dir + "/worker.toml";
  joined.tls_dir = options.config_dir + "/worker-tls";
  std::error_code error;
  fs::create_directories(options.config_dir, error);
  if (error || access(options.config_dir.c_str(), W_OK) != 0) {
    return Error(absl::StatusCode::kInternal, "FILE_FAILED",
                 "cannot write to " + options.config_dir + ": " +
                     (error ? error.message() : std::strerror(errno)))
        .Hint(kFileHint);
  }
  ASSIGN_OR_RETURN(const std::string key, KeyToJoinWith(joined.tls_dir));
  v1::JoinRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeCertificateRequest(key));
  request.set_name(options.name);
  request.mutable_hosts()->Assign(options.hosts.begin(), options.hosts.end());
  ASSIGN_OR_RETURN(const v1::JoinResponse response,
                   options.discover ? AskToJoinDiscovered(&token, request, options.say)
                                    : AskToJoin(token, request));
  joined.coordinator = token.address();
  joined.cluster = response.cluster();
  RETURN_IF_ERROR(WriteTlsFolder(
      joined.tls_dir,
      {.ca = response.authority(), .own = {.cert = response.certificate(), .key = key}},
      ServicesAccess()));
  RETURN_IF_ERROR(SetInConfig(
      joined.config,
      {{"coordinator", joined.coordinator}, {"name", options.name}, {"tls-dir", joined.tls_dir}},
      kFileHint));
  return joined;
}

int JoinMain(int argc, const char* const* argv, const GetEnvFn& get_env) {
  JoinOptions options;
  options.name = HostName();
  options.config_dir = DefaultConfigDir(get_env);
  std::string hosts = absl::StrJoin(MachineHosts(kMaxCertificateHosts), ",");
  std::string start = "auto";
  std::vector<const char*> rest = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    // A value of a flag stands behind one that takes any.
    const bool value = i > 1 && std::strncmp(argv[i - 1], "--", 2) == 0 &&
                       std::strchr(argv[i - 1], '=') == nullptr &&
                       std::strcmp(argv[i - 1], "--discover") != 0;
    if (options.token.empty() && !value && (argv[i][0] != '-' || std::strcmp(argv[i], "-") == 0)) {
      options.token = argv[i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  Flags flags(
      "strata-worker join TOKEN", "STRATA_WORKER_",
      "Makes this machine a worker of a cluster: gets a certificate by the TOKEN that\n"
      "`strata node token` printed, writes worker.toml, and starts the service.",
      "With TOKEN - it is read from stdin, so that no other user of the machine sees it. The\n"
      "key never leaves the machine; joining again keeps it. What else worker.toml says stays.");
  flags.Text("name", &options.name, "The node's name in the cluster");
  flags.Text("hosts", &hosts, "By which others dial this machine, HOST,...");
  flags.Text("config-dir", &options.config_dir,
             "Gets worker.toml, and worker-tls with key and certificate");
  flags.Switch("discover", &options.discover,
               "Ask the local network for the coordinator, which --announce tells of, instead of "
               "the address in TOKEN; wants avahi-daemon and avahi-browse");
  flags.Choice("start", &start, {"auto", "no"},
               "Whether to start the service: auto where packages brought one and systemd runs");
  if (const auto exit = flags.Parse(static_cast<int>(rest.size()), rest.data(), get_env)) {
    return *exit;
  }
  if (options.token == "-") {
    std::getline(std::cin, options.token);
  }
  if (options.token.empty()) {
    std::fprintf(stderr,
                 "strata-worker: TOKEN is required: `strata node token` prints one; see "
                 "strata-worker join --help\n");
    return 2;
  }
  options.hosts = absl::StrSplit(hosts, ',', absl::SkipEmpty());
  options.say = [](const std::string& said) {
    std::fputs(said.c_str(), stdout);
    std::fflush(stdout);
  };
  const absl::StatusOr<Joined> joined = JoinCluster(options);
  if (!joined.ok()) {
    return Fail(joined.status());
  }
  std::printf("%s is part of the cluster %s now, at %s\n  %s\n  %s\n", options.name.c_str(),
              joined->cluster.c_str(), joined->coordinator.c_str(), joined->config.c_str(),
              joined->tls_dir.c_str());
  if (start == "auto" && joined->config == kUnitsConfig && CanStartService(kUnit)) {
    std::fflush(stdout);
    if (const absl::Status started = StartService(kUnit); !started.ok()) {
      return Fail(started);
    }
    std::printf("started %s\n", kUnit);
  } else {
    std::printf("start it: strata-worker --config %s\n", ShellWord(joined->config).c_str());
  }
  return 0;
}

}  // namespace strata
