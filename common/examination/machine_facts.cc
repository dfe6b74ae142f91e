#include "common/examination/machine_facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "common/digest.h"
#include "common/platform/diagnosis.h"
#include "common/platform/platform.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// Bytes of the line "name:  N kB"; 0 where there is none.
uint64_t KibLine(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) {
      uint64_t kib = 0;
      std::istringstream(line.substr(name.size() + 1)) >> kib;
      return kib << 10;
    }
  }
  return 0;
}

}  // namespace

std::string MachineId(const std::string& root) {
  std::ifstream in(root + "/proc/sys/kernel/random/boot_id");
  const std::string id{std::istreambuf_iterator<char>(in), {}};
  constexpr size_t kDigits = 16;
  return id.empty() ? "" : Sha256Hex("strata machine " + id).substr(0, kDigits);
}

v1::MemoryFacts LookAtMemory(const std::string& root, uint64_t promised_bytes) {
  v1::MemoryFacts facts;
  const std::string machine = root + "/proc/meminfo";
  facts.set_total_bytes(KibLine(machine, "MemTotal"));
  facts.set_available_bytes(AvailableMemoryBytes());
  facts.set_promised_bytes(promised_bytes);
  facts.set_resident_bytes(ResidentMemoryBytes());
  facts.set_swapped_bytes(KibLine(root + "/proc/self/status", "VmSwap"));
  facts.set_swap_used_bytes(KibLine(machine, "SwapTotal") - KibLine(machine, "SwapFree"));
  return facts;
}

v1::DiskFacts LookAtDisk(const std::string& path) {
  v1::DiskFacts facts;
  std::error_code error;
  fs::path there = fs::absolute(path, error);
  while (!fs::exists(there, error) && there.has_parent_path() && there != there.parent_path()) {
    there = there.parent_path();
  }
  facts.set_path(there.string());
  struct statvfs info {};
  if (statvfs(there.c_str(), &info) != 0) {
    return facts;
  }
  facts.set_total_bytes(uint64_t{info.f_blocks} * info.f_frsize);
  facts.set_free_bytes(uint64_t{info.f_bavail} * info.f_frsize);
  facts.set_read_only((info.f_flag & ST_RDONLY) != 0);
  facts.set_writable(access(there.c_str(), W_OK | X_OK) == 0);
  facts.set_in_memory(IsInMemory(there.string()));
  return facts;
}

v1::CertificateFacts LookAtCertificate(const std::string& folder, const std::string& host,
                                       int64_t now_s) {
  v1::CertificateFacts facts;
  facts.set_folder(folder);
  if (folder.empty()) {
    return facts;
  }
  facts.set_in_memory(IsInMemory(folder));
  struct stat key {};
  if (stat((folder + "/key.pem").c_str(), &key) == 0) {
    constexpr uint32_t kPermissions = 0777;
    facts.set_key_mode(key.st_mode & kPermissions);
    // Who cannot enter the folder reads nothing in it.
    struct stat around {};
    const bool entered = stat(folder.c_str(), &around) == 0 && (around.st_mode & S_IXOTH) != 0;
    facts.set_key_open(entered && (key.st_mode & (S_IROTH | S_IWOTH)) != 0);
  }
  const auto files = ReadTlsFiles(folder, now_s);
  absl::Status status = files.status();
  if (status.ok()) {
    facts.set_subject(files->ends_first.subject);
    facts.set_not_before_s(files->ends_first.not_before_s);
    facts.set_not_after_s(files->ends_first.not_after_s);
    facts.set_ends_soon(EndsSoon(files->ends_first, now_s));
    status = files->own_chain;
  }
  if (status.ok() && !host.empty()) {
    status = CheckCertificateName(files->cert, host, "the certificate in " + folder + "/cert.pem");
  }
  if (!status.ok()) {
    *facts.mutable_error() = DetailOf(status);
  }
  return facts;
}

std::vector<std::string> GpuDrivers(const std::string& root) {
  std::error_code error;
  std::vector<std::string> found;
  if (fs::exists(root + "/proc/driver/nvidia/version", error)) {
    found.emplace_back("cuda");
  }
  return found;
}

}  // namespace strata
