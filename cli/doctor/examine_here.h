// The services of this machine, looked at without asking anybody: they need not run.
#ifndef STRATA_CLI_DOCTOR_EXAMINE_HERE_H_
#define STRATA_CLI_DOCTOR_EXAMINE_HERE_H_

#include <string>
#include <vector>

#include "strata/v1/diagnosis.pb.h"

namespace strata::cli {

// The files of flags of this machine's services: those of /etc/strata whose service starts with the
// machine or runs now, or all of them where none does; and `user_config_dir`/worker.toml. Empty
// where there are none.
std::vector<std::string> ConfigsHere(const std::string& user_config_dir);

// What the process of `config` finds when it starts here, by its own program: the one beside this
// one, else that of $PATH. Whether it is a coordinator's or a worker's follows from its name. Where
// that program refuses the file or fails, the facts say so.
v1::MachineFacts ExamineHere(const std::string& config);

}  // namespace strata::cli

#endif  // STRATA_CLI_DOCTOR_EXAMINE_HERE_H_
