// The file of a worker's flags (--config): some of them set, and the rest left as it is.
#ifndef STRATA_WORKER_JOINING_CONFIG_FILE_H_
#define STRATA_WORKER_JOINING_CONFIG_FILE_H_

#include <string>
#include <utility>
#include <vector>

namespace strata {

// `text` (TOML, one table of flags) with each key of `settings` set to its text: the line that sets
// it is replaced, or one that is commented out and would, or a line is added. Comments and
// everything else stay.
std::string WithSettings(const std::string& text,
                         const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace strata

#endif  // STRATA_WORKER_JOINING_CONFIG_FILE_H_
