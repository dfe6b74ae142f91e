#include "common/names.h"

#include <algorithm>
#include <string>

#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kShownBytes = 128;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

bool IsName(std::string_view name, size_t max_bytes) {
  return !name.empty() && name.size() <= max_bytes && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

absl::Status BadName(std::string_view name, const std::string& what, size_t max_bytes) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_NAME",
               "'" + Printable(name, kShownBytes) + "' is no " + what + ": 1 to " +
                   std::to_string(max_bytes) +
                   " letters, digits, '-', '_' or '.', and neither '-' nor '.' at its begin")
      .Hint("choose one with --name");
}

}  // namespace

absl::Status CheckNodeName(std::string_view name) {
  return IsName(name, kMaxNodeNameBytes) ? absl::OkStatus()
                                         : BadName(name, "node name", kMaxNodeNameBytes);
}

absl::Status CheckModelName(std::string_view name) {
  return IsName(name, kMaxModelNameBytes) ? absl::OkStatus()
                                          : BadName(name, "model name", kMaxModelNameBytes);
}

absl::Status CheckRepositoryName(std::string_view repository) {
  const size_t slash = repository.find('/');
  if (slash != std::string_view::npos && IsName(repository.substr(0, slash), kMaxModelNameBytes) &&
      IsName(repository.substr(slash + 1), kMaxModelNameBytes)) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_REPOSITORY",
               "'" + Printable(repository, kShownBytes) + "' is not the name of a repository")
      .Hint("write ORG/NAME, as in meta-llama/Llama-3.2-1B-Instruct");
}

}  // namespace strata
