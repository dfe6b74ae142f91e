// Where there is no systemd. launchd asks nothing of its processes.
#include "common/app/service_manager.h"

namespace strata {

ServiceManager ServiceManagerOfProcess() { return {}; }
bool StderrIsJournal() { return false; }
void SendToJournal(int /*priority*/, const std::string& /*message*/,
                   const std::vector<std::pair<std::string, std::string>>& /*fields*/) {}

}  // namespace strata
