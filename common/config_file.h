// The files of flags (--config): some of the flags set, and the rest left as it is.
#ifndef STRATA_COMMON_CONFIG_FILE_H_
#define STRATA_COMMON_CONFIG_FILE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// `text` (TOML, one table of flags) with each key of `settings` set to its text: the line that sets
// it is replaced, or one that is commented out and would, or a line is added. Comments and
// everything else stay.
std::string WithSettings(const std::string& text,
                         const std::vector<std::pair<std::string, std::string>>& settings);

// What the first line of `text` that sets `key` gives it, without quotes; none where it is not set,
// or in a comment only.
std::optional<std::string> SettingOf(const std::string& text, const std::string& key);

}  // namespace strata

#endif  // STRATA_COMMON_CONFIG_FILE_H_
