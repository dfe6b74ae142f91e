#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "common/app/service_manager.h"

namespace strata {

ServiceManager ServiceManagerOfProcess() {
  ServiceManager manager;
  const char* socket = std::getenv("NOTIFY_SOCKET");
  if (socket == nullptr || *socket == '\0') {
    return manager;
  }
  manager.notify = [](const std::string& lines) { (void)sd_notify(0, lines.c_str()); };
  uint64_t us = 0;
  if (sd_watchdog_enabled(0, &us) > 0) {
    manager.watchdog = std::chrono::microseconds(us);
  }
  return manager;
}

bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");  // DEVICE:INODE
  struct stat info {};
  return stream != nullptr && fstat(STDERR_FILENO, &info) == 0 &&
         stream == std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

void SendToJournal(int priority, const std::string& message,
                   const std::vector<std::pair<std::string, std::string>>& fields) {
  std::vector<std::string> lines = {"MESSAGE=" + message, "PRIORITY=" + std::to_string(priority)};
  for (const auto& [name, value] : fields) lines.push_back(name + "=" + value);
  std::vector<iovec> parts;
  parts.reserve(lines.size());
  for (std::string& line : lines) parts.push_back({line.data(), line.size()});
  (void)sd_journal_sendv(parts.data(), static_cast<int>(parts.size()));
}

}  // namespace strata
