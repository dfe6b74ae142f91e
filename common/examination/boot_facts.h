// What the next start of the machine finds: units of systemd, and who may run without a session.
#ifndef STRATA_COMMON_EXAMINATION_BOOT_FACTS_H_
#define STRATA_COMMON_EXAMINATION_BOOT_FACTS_H_

#include <string>

#include "strata/v1/diagnosis.pb.h"

namespace strata {

// The unit of systemd that this process is, by its cgroup; "" where it is none. `user`: whether it
// is one of a user's own manager. `root` is where proc lies.
std::string UnitOfProcess(const std::string& root, bool* user);

// The packages' unit whose file of flags is `config` (/etc/strata/worker-a.toml:
// strata-worker@a.service); "" for another file.
std::string UnitOfConfig(const std::string& config);

// Fills in what is known of `facts->unit()`, from the files beneath `root`. `home` and `user` are
// those of the one whose unit it is, for one of a user's own manager.
void LookAtUnit(const std::string& root, const std::string& home, v1::BootFacts* facts);

}  // namespace strata

#endif  // STRATA_COMMON_EXAMINATION_BOOT_FACTS_H_
