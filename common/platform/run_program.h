// Other programs, run to their end: ssh, systemctl.
#ifndef STRATA_COMMON_PLATFORM_RUN_PROGRAM_H_
#define STRATA_COMMON_PLATFORM_RUN_PROGRAM_H_

#include <chrono>
#include <cstddef>
#include <memory>
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
  // The program gets SIGTERM when the thread that started it ends, however that does; where the
  // system can (Linux).
  bool ends_with_thread = false;
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

// A program that runs beside this process. One thread.
class RunningProgram {
 public:
  // Starts `words` as RunProgram, whose errors it has, and does not wait. `timeout` is not looked
  // at.
  static absl::StatusOr<std::unique_ptr<RunningProgram>> Start(
      const std::vector<std::string>& words, const ProgramOptions& options = {});
  // Ends it: by SIGTERM, or by SIGKILL a second later. Waits for that.
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Whether it has ended; takes what it wrote since, which it waits to write until then. Waits some
  // milliseconds at most.
  bool HasEnded();
  // What it wrote as far as it was taken, and, once it has ended, its status.
  const ProgramResult& result() const;

 private:
  class Impl;
  explicit RunningProgram(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_RUN_PROGRAM_H_
