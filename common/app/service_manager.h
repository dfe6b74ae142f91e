// What started this process and watches over it: systemd, where it did. It is told when the process
// is ready, what it does, and that it is alive; its journal takes log lines with their fields.
#ifndef STRATA_COMMON_APP_SERVICE_MANAGER_H_
#define STRATA_COMMON_APP_SERVICE_MANAGER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace strata {

// Texts of sd_notify(3): lines of NAME=VALUE.
struct ServiceManager {
  // Any thread; does not wait. Empty: nobody is to be told.
  std::function<void(const std::string& lines)> notify;
  // It ends and restarts a process that says nothing for so long. 0: never.
  nanoseconds watchdog{0};

  bool present() const { return notify != nullptr; }
};

// By the environment that the manager gave this process (NOTIFY_SOCKET, WATCHDOG_USEC).
ServiceManager ServiceManagerOfProcess();

// A line of NAME=VALUE. What would end the line, or is no text, is left out.
std::string ServiceLine(const std::string& name, const std::string& value);
// "STATUS=...", one line for people.
std::string StatusLine(const std::string& status);
// "STOPPING=1", the status, and that stopping may take so long.
std::string StoppingLines(const std::string& status, nanoseconds longest);

// Whether stderr leads to systemd's journal.
bool StderrIsJournal();
// A line of the journal: its severity as syslog counts, its text, and fields by name (capitals,
// digits and underscores). Any thread.
void SendToJournal(int priority, const std::string& message,
                   const std::vector<std::pair<std::string, std::string>>& fields);

}  // namespace strata

#endif  // STRATA_COMMON_APP_SERVICE_MANAGER_H_
