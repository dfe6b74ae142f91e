// Errors that every state store gives alike.
#ifndef STRATA_COORDINATOR_STORE_STORE_ERRORS_H_
#define STRATA_COORDINATOR_STORE_STORE_ERRORS_H_

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {

inline absl::Status NoSuchModel(std::string_view name) {
  return Error(absl::StatusCode::kNotFound, "NO_MODEL",
               absl::StrCat("there is no model '", std::string(name), "'"))
      .Hint("see `strata model list`");
}

inline absl::Status NoSuchDeployment(uint64_t deployment) {
  return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT",
               absl::StrCat("there is no deployment ", deployment));
}

inline absl::Status NoSuchNode(std::string_view name) {
  return Error(absl::StatusCode::kNotFound, "NO_NODE",
               absl::StrCat("there is no node '", std::string(name), "'"))
      .Hint("see `strata node list`");
}

inline absl::Status StaleEpoch(uint64_t deployment, uint64_t given, uint64_t stored) {
  return Error(
      absl::StatusCode::kFailedPrecondition, "STALE_EPOCH",
      absl::StrCat("deployment ", deployment, " has epoch ", stored, ", newer than ", given));
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_STORE_ERRORS_H_
