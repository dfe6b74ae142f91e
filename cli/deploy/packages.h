// The Debian packages that machines are to have.
#ifndef STRATA_CLI_DEPLOY_PACKAGES_H_
#define STRATA_CLI_DEPLOY_PACKAGES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace strata::deploy {

// A file NAME_VERSION_ARCHITECTURE.deb here.
struct Package {
  std::string path;
  std::string version;
  std::string architecture;  // "all": of any machine.
  std::string sha256;        // Lower-case hex.
  uint64_t bytes = 0;
};

// By name, those of Strata that services and the command line are in.
using Packages = std::map<std::string, Package>;

// What is in a folder, with digests of the files. NOT_FOUND (PACKAGES_MISSING) names the ones that
// lack; INVALID_ARGUMENT (PACKAGES_DIFFER) where they are of several versions or a name is there
// twice.
absl::StatusOr<Packages> FindPackages(const std::string& folder);

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_PACKAGES_H_
