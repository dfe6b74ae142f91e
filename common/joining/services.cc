#include "common/joining/services.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/config_file.h"
#include "common/names.h"
#include "common/platform/addresses.h"
#include "common/platform/platform.h"
#include "common/platform/run_program.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// Whose processes the packages' units are.
constexpr char kGroup[] = "strata";
constexpr char kUser[] = "strata";
constexpr size_t kShownBytes = 1000;
// A worker's start waits until it has joined; systemd itself gives up earlier.
constexpr std::chrono::milliseconds kStartTimeout{180'000};

}  // namespace

bool CanStartService(const std::string& unit) {
  return geteuid() == 0 && fs::exists("/run/systemd/system") &&
         (fs::exists("/lib/systemd/system/" + unit) || fs::exists("/etc/systemd/system/" + unit));
}

absl::Status StartService(const std::string& unit) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"systemctl", "enable", "--quiet", unit},
        {"systemctl", "restart", unit}}) {
    ASSIGN_OR_RETURN(const ProgramResult ran, RunProgram(words, {.timeout = kStartTimeout}));
    if (ran.exit_status != 0) {
      const std::string said(absl::StripAsciiWhitespace(ran.error));
      return Error(absl::StatusCode::kUnavailable, "SERVICE_FAILED",
                   absl::StrCat(unit, " does not start: ", Printable(said, kShownBytes)))
          .Hint("`journalctl -u " + unit + "` says why; then `systemctl restart " + unit + "`");
    }
  }
  return absl::OkStatus();
}

TlsFolderAccess ServicesAccess() {
  const group* found = geteuid() == 0 ? getgrnam(kGroup) : nullptr;
  return {.group = found != nullptr ? std::optional<uint32_t>(found->gr_gid) : std::nullopt};
}

TlsFolderAccess ServicesOwnership() {
  TlsFolderAccess access = ServicesAccess();
  if (const passwd* found = geteuid() == 0 ? getpwnam(kUser) : nullptr; found != nullptr) {
    access.owner = TlsFolderOwner{.user = found->pw_uid, .group = found->pw_gid};
  }
  return access;
}

absl::Status SetInConfig(const std::string& path,
                         const std::vector<std::pair<std::string, std::string>>& settings,
                         const std::string& hint) {
  const auto failed = [&](const std::string& what) {
    return Error(absl::StatusCode::kInternal, "FILE_FAILED", what).Hint(hint);
  };
  std::ifstream in(path, std::ios::binary);
  const std::string before((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string made = path + ".new";
  std::error_code error;
  if (fs::exists(path)) {
    fs::copy_file(path, made, fs::copy_options::overwrite_existing, error);
    if (error) {
      return failed(absl::StrCat("cannot write ", made, ": ", error.message()));
    }
  }
  {
    std::ofstream out(made, std::ios::binary | std::ios::trunc);
    out << WithSettings(before, settings);
    out.flush();
    if (!out.good()) {
      return failed("cannot write " + made);
    }
  }
  fs::rename(made, path, error);
  if (error) {
    return failed(absl::StrCat("cannot replace ", path, ": ", error.message()));
  }
  return absl::OkStatus();
}

std::vector<std::string> MachineHosts(size_t most) {
  std::vector<std::string> hosts = MachineAddresses();
  const std::string name = HostName();
  const bool named = CheckNodeName(name).ok();
  hosts.resize(std::min(hosts.size(), most - (named ? 1 : 0)));
  if (named) {
    hosts.push_back(name);
  }
  return hosts;
}

}  // namespace strata
