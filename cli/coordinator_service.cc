#include "cli/coordinator_service.h"

#include <grp.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/config_file.h"
#include "common/platform/run_program.h"
#include "common/printable.h"
#include "common/rpc/address.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "/etc/strata/coordinator.toml";
constexpr char kWorkerConfig[] = "/etc/strata/worker.toml";
constexpr char kUnit[] = "strata-coordinator.service";
constexpr char kWorkerUnit[] = "strata-worker.service";
// Whose processes the packages' units are.
constexpr char kGroup[] = "strata";
constexpr char kDefaultPort[] = "7070";
constexpr size_t kShownBytes = 1000;
// A worker's start waits until it has joined; systemd itself gives up earlier.
constexpr std::chrono::milliseconds kStartTimeout{180'000};

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

absl::Status FileFailed(const std::string& what) {
  return Error(absl::StatusCode::kInternal, "FILE_FAILED", what)
      .Hint("see who may write there, or give --dir another folder");
}

bool HasUnit(const std::string& unit) {
  return fs::exists("/lib/systemd/system/" + unit) || fs::exists("/etc/systemd/system/" + unit);
}

std::optional<HostPort> Listens(const std::string& config) {
  const auto set = SettingOf(config, "listen");
  if (!set.has_value()) {
    return std::nullopt;
  }
  const auto at = ParseHostPort(*set);
  return at.ok() ? std::optional<HostPort>(*at) : std::nullopt;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

// The group whose services may read what is theirs.
TlsFolderAccess ServicesAccess() {
  const group* found = getgrnam(kGroup);
  return {.group = found != nullptr ? std::optional<uint32_t>(found->gr_gid) : std::nullopt};
}

// As a whole, or not at all; the file's owner and who may read it stay.
absl::Status SetInFile(const std::string& path, const Settings& settings) {
  const std::string made = path + ".new";
  std::error_code error;
  fs::copy_file(path, made, fs::copy_options::overwrite_existing, error);
  if (!error) {
    std::ofstream out(made, std::ios::binary | std::ios::trunc);
    out << WithSettings(ReadText(path), settings);
    out.flush();
    if (!out.good()) {
      return FileFailed("cannot write " + made);
    }
  }
  if (!error) {
    fs::rename(made, path, error);
  }
  return error ? FileFailed(absl::StrCat("cannot replace ", path, ": ", error.message()))
               : absl::OkStatus();
}

absl::Status Start(const std::string& unit) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"systemctl", "enable", "--quiet", unit},
        {"systemctl", "restart", unit}}) {
    ASSIGN_OR_RETURN(const ProgramResult ran, RunProgram(words, {.timeout = kStartTimeout}));
    if (ran.exit_status != 0) {
      return Error(absl::StatusCode::kUnavailable, "SERVICE_FAILED",
                   absl::StrCat(
                       unit, " does not start: ",
                       Printable(std::string(absl::StripAsciiWhitespace(ran.error)), kShownBytes)))
          .Hint("`journalctl -u " + unit + "` says why; then `systemctl restart " + unit + "`");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool CanSetUpService() {
  return geteuid() == 0 && fs::exists("/run/systemd/system") && fs::exists(kConfig) &&
         HasUnit(kUnit);
}

bool HasWorkerService() { return HasUnit(kWorkerUnit); }

std::string ServicePort() {
  const auto at = Listens(ReadText(kConfig));
  return at.has_value() ? std::to_string(at->port) : kDefaultPort;
}

absl::Status CheckServiceHasNoAuthority() {
  if (!ReadAuthority(kServiceAuthority).ok()) {
    return absl::OkStatus();
  }
  return Error(
             absl::StatusCode::kAlreadyExists, "AUTHORITY_EXISTS",
             absl::StrCat("this machine has a cluster's authority already, in ", kServiceAuthority))
      .Hint(
          "`strata node token` has other machines join that cluster; to make another one, move "
          "that folder away first");
}

absl::Status SetUpService(const CertifiedKey& authority, const TlsFolder& coordinator, bool open) {
  RETURN_IF_ERROR(CheckServiceHasNoAuthority());
  RETURN_IF_ERROR(WriteTlsFolder(kServiceTls, coordinator, ServicesAccess()));
  RETURN_IF_ERROR(WriteAuthority(kServiceAuthority, authority, ServicesAccess()));
  Settings settings = {{"tls-dir", kServiceTls}, {"authority", kServiceAuthority}};
  const auto listens = Listens(ReadText(kConfig));
  if (open && (!listens.has_value() || IsLoopback(listens->host))) {
    settings.emplace_back("listen", absl::StrCat("0.0.0.0:", ServicePort()));
  }
  RETURN_IF_ERROR(SetInFile(kConfig, settings));
  return Start(kUnit);
}

absl::Status SetUpWorkerService(const TlsFolder& worker, const std::string& name,
                                const std::string& coordinator) {
  RETURN_IF_ERROR(WriteTlsFolder(kWorkerServiceTls, worker, ServicesAccess()));
  RETURN_IF_ERROR(
      SetInFile(kWorkerConfig,
                {{"coordinator", coordinator}, {"name", name}, {"tls-dir", kWorkerServiceTls}}));
  return Start(kWorkerUnit);
}

}  // namespace strata::cli
