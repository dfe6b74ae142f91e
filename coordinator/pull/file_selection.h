// Which files of a repository are fetched, and which names are safe.
#ifndef STRATA_COORDINATOR_PULL_FILE_SELECTION_H_
#define STRATA_COORDINATOR_PULL_FILE_SELECTION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

// Splits ORG/NAME. INVALID_ARGUMENT unless both are of letters, digits, '-', '_' and '.', and do
// not begin with '.' or '-'.
absl::StatusOr<std::pair<std::string, std::string>> SplitRepository(std::string_view repository);
// One segment of a path by the same rule.
bool IsPlainName(std::string_view name);
// The names to fetch among those that the server lists, sorted by name. INVALID_ARGUMENT if a name
// could leave the folder (it is not skipped: such a listing is not to be trusted).
// FAILED_PRECONDITION if there are no safetensors. Weights come last: what is wrong with the others
// shows before they are fetched.
absl::StatusOr<std::vector<std::string>> SelectFiles(const std::vector<std::string>& listed);

// The most bytes that a file of this name may have, as those that read it will ask.
uint64_t MaxBytesOf(std::string_view name);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_FILE_SELECTION_H_
