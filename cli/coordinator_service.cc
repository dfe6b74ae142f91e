#include "cli/coordinator_service.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config_file.h"
#include "common/joining/services.h"
#include "common/rpc/address.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "/etc/strata/coordinator.toml";
constexpr char kWorkerConfig[] = "/etc/strata/worker.toml";
constexpr char kUnit[] = "strata-coordinator.service";
constexpr char kWorkerUnit[] = "strata-worker.service";
constexpr char kDefaultPort[] = "7070";
constexpr char kFileHint[] = "see who may write there, or give --dir another folder";

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::optional<HostPort> Listens(const std::string& config) {
  const auto set = SettingOf(config, "listen");
  if (!set.has_value()) {
    return std::nullopt;
  }
  const auto at = ParseHostPort(*set);
  return at.ok() ? std::optional<HostPort>(*at) : std::nullopt;
}

}  // namespace

bool CanSetUpService() { return CanStartService(kUnit) && fs::exists(kConfig); }

bool HasWorkerService() { return CanStartService(kWorkerUnit); }

std::string ServicePort() {
  const auto at = Listens(ReadText(kConfig));
  return at.has_value() ? std::to_string(at->port) : kDefaultPort;
}

std::string ServiceAuthority() {
  const std::string set = SettingOf(ReadText(kConfig), "authority").value_or("");
  return set.empty() ? kServiceAuthority : set;
}

absl::Status CheckServiceHasNoAuthority() {
  for (const std::string& path : {ServiceAuthority(), std::string(kServiceAuthority)}) {
    if (ReadAuthority(path).ok()) {
      return Error(absl::StatusCode::kAlreadyExists, "AUTHORITY_EXISTS",
                   absl::StrCat("this machine has a cluster's authority already, in ", path))
          .Hint(
              "`strata node token` has other machines join that cluster; to make another one, move "
              "that folder away first");
    }
  }
  return absl::OkStatus();
}

absl::Status SetUpService(const CertifiedKey& authority, const TlsFolder& coordinator, bool open) {
  RETURN_IF_ERROR(WriteTlsFolder(kServiceTls, coordinator, ServicesAccess()));
  RETURN_IF_ERROR(WriteAuthority(kServiceAuthority, authority, ServicesOwnership()));
  std::vector<std::pair<std::string, std::string>> settings = {{"tls-dir", kServiceTls},
                                                               {"authority", kServiceAuthority}};
  const auto listens = Listens(ReadText(kConfig));
  if (open && (!listens.has_value() || IsLoopback(listens->host))) {
    settings.emplace_back("listen", absl::StrCat("0.0.0.0:", ServicePort()));
  }
  RETURN_IF_ERROR(SetInConfig(kConfig, settings, kFileHint));
  return StartService(kUnit);
}

absl::Status SetUpWorkerService(const TlsFolder& worker, const std::string& name,
                                const std::string& coordinator) {
  RETURN_IF_ERROR(WriteTlsFolder(kWorkerServiceTls, worker, ServicesAccess()));
  RETURN_IF_ERROR(SetInConfig(
      kWorkerConfig, {{"coordinator", coordinator}, {"name", name}, {"tls-dir", kWorkerServiceTls}},
      kFileHint));
  return StartService(kWorkerUnit);
}

}  // namespace strata::cli
