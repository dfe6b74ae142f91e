// Other programs, run to their end: ssh, systemctl.
#ifndef STRATA_COMMON_PLATFORM_RUN_PROGRAM_H_
#define STRATA_COMMON_PLATFORM_RUN_PROGRAM_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

struct ProgramOptions {
  // What the program reads from its standard input: this text, or else the file of that path.
  std::string input{};
  std::string input_file{};
  // Set beside this process's own environment.
  std::vector<std::pair<std::string, std::string>> variables{};
  std::chrono::milliseconds timeout{60'000};
  // The most that is kept of each of its outputs; what is beyond is dropped.
  size_t max_output_bytes = size_t{1} << 20;
};

struct ProgramResult {
  // As shells say it: 128 and the signal's number where a signal ended it.
  int exit_status = 0;
  std::string out;
  std::string error;
};

// Runs `words`, the first of which is looked for in PATH, and waits for its end. Blocks; any
// thread. NOT_FOUND (PROGRAM_MISSING) where there is no such program, INTERNAL (PROGRAM_FAILED)
// where the system starts none or the input cannot be read, DEADLINE_EXCEEDED (PROGRAM_TIMED_OUT)
// where it was killed. That it ended with another status than 0 is no error.
absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& words,
                                         const ProgramOptions& options = {});

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_RUN_PROGRAM_H_
