// Runs another program for a while, and takes what it prints.
#ifndef STRATA_CLI_DOCTOR_RUN_PROGRAM_H_
#define STRATA_CLI_DOCTOR_RUN_PROGRAM_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace strata::cli {

struct ProgramRun {
  int exit_status = -1;  // -1: a signal ended it.
  int signal = 0;
  std::string out;  // At most so many bytes as were asked for.
  std::string err;
};

// `command` is its program, found as the shell does, and its arguments. `variables` are set beside
// this process's own. NOT_FOUND where it cannot be started, DEADLINE_EXCEEDED where it has not
// ended by then: it is killed.
absl::StatusOr<ProgramRun> RunProgram(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& variables,
    std::chrono::milliseconds timeout, size_t max_output_bytes);

}  // namespace strata::cli

#endif  // STRATA_CLI_DOCTOR_RUN_PROGRAM_H_
