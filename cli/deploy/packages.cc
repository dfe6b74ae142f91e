#include "cli/deploy/packages.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/digest.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr std::string_view kNames[] = {"strata-coordinator", "strata-worker", "strata-cli"};
constexpr char kPackagesHint[] = "`./dev package` makes them in build/packages";

absl::StatusOr<std::string> DigestOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Sha256 digest;
  std::vector<char> piece(kPieceBytes);
  while (in.good()) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    digest.Update(piece.data(), static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) {
    return Error(absl::StatusCode::kInternal, "FILE_FAILED", "cannot read " + path);
  }
  return ToHex(digest.Finish());
}

// NAME_VERSION_ARCHITECTURE.deb of one of kNames.
std::optional<std::pair<std::string, Package>> PackageAt(const fs::path& path) {
  if (path.extension() != ".deb") {
    return std::nullopt;
  }
  const std::string stem = path.stem().string();
  const std::vector<std::string> parts = absl::StrSplit(stem, '_');
  for (const std::string_view name : kNames) {
    if (parts.size() == 3 && parts[0] == name) {
      return std::pair(parts[0], Package{.path = path.string(),
                                         .version = parts[1],
                                         .architecture = parts[2],
                                         .sha256 = "",
                                         .bytes = 0});
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Packages> FindPackages(const std::string& folder) {
  Packages packages;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    auto found = PackageAt(at->path());
    if (!found.has_value()) {
      continue;
    }
    const std::string path = found->second.path;
    const auto [it, added] = packages.insert(*std::move(found));
    if (!added) {
      return Error(absl::StatusCode::kInvalidArgument, "PACKAGES_DIFFER",
                   absl::StrCat(it->second.path, " and ", path, " are the same package"))
          .Hint("leave the one there that is to be installed");
    }
  }
  if (error) {
    return Error(absl::StatusCode::kNotFound, "PACKAGES_MISSING",
                 absl::StrCat("cannot read the folder ", folder, ": ", error.message()))
        .Hint(kPackagesHint);
  }
  std::vector<std::string> missing;
  for (const std::string_view name : kNames) {
    if (!packages.contains(std::string(name))) {
      missing.emplace_back(name);
    }
  }
  if (!missing.empty()) {
    return Error(absl::StatusCode::kNotFound, "PACKAGES_MISSING",
                 absl::StrCat(folder, " lacks the packages ", absl::StrJoin(missing, ", ")))
        .Hint(kPackagesHint);
  }
  for (auto& [name, package] : packages) {
    const Package& first = packages.begin()->second;
    if (package.version != first.version) {
      return Error(absl::StatusCode::kInvalidArgument, "PACKAGES_DIFFER",
                   absl::StrCat(folder, " has ", packages.begin()->first, " of version ",
                                first.version, " and ", name, " of ", package.version))
          .Hint("leave the ones there that belong together");
    }
    package.bytes = fs::file_size(package.path, error);
    ASSIGN_OR_RETURN(package.sha256, DigestOf(package.path));
  }
  return packages;
}

}  // namespace strata::deploy
