// What nodes, models and repositories may be called. Names are in commands that people type, in
// paths and in tables: so none is an option of a command, a folder above, or has blanks.
#ifndef STRATA_COMMON_NAMES_H_
#define STRATA_COMMON_NAMES_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace strata {

inline constexpr size_t kMaxNodeNameBytes = 64;
inline constexpr size_t kMaxModelNameBytes = 96;

// INVALID_ARGUMENT, reason BAD_NAME, with what a name may have: letters, digits, '-', '_' and '.',
// the first of them neither '-' nor '.'.
absl::Status CheckNodeName(std::string_view name);
absl::Status CheckModelName(std::string_view name);

// ORG/NAME, each a model's name. Reason BAD_REPOSITORY.
absl::Status CheckRepositoryName(std::string_view repository);

}  // namespace strata

#endif  // STRATA_COMMON_NAMES_H_
