// The file of --config: TOML, one table of flags.
#ifndef STRATA_COMMON_APP_FLAG_FILE_H_
#define STRATA_COMMON_APP_FLAG_FILE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

struct FlagFileValue {
  std::string text;   // As the command line would have it.
  std::string where;  // "FILE:LINE: ".
};

// What the file at `path` sets, by flag. INVALID_ARGUMENT (BAD_FLAG) where it cannot be read, is no
// TOML or longer than a megabyte, or has a key that is none of `known`.
absl::StatusOr<std::map<std::string, FlagFileValue>> ReadFlagFile(
    const std::string& path, const std::set<std::string>& known);

// What a process was started with.
struct FlagReport {
  struct Value {
    std::string name;
    std::string text;  // Of one that was not given, its default as --help shows it.
    std::string from;  // "command line", "environment", "file", "default".
  };
  std::vector<Value> values;  // By name.
  std::string config;         // The file; "": none.
};

// The flags of which the file says otherwise now. Errors are ReadFlagFile's.
absl::StatusOr<std::vector<std::string>> ChangedFlags(const FlagReport& started_with);

}  // namespace strata

#endif  // STRATA_COMMON_APP_FLAG_FILE_H_
