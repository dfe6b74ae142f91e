// Shells on other machines.
#ifndef STRATA_CLI_DEPLOY_SHELL_H_
#define STRATA_CLI_DEPLOY_SHELL_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/deploy/inventory.h"

namespace strata::deploy {

struct ShellInput {
  // What the script reads from its standard input: this text, or else the file of that path here.
  std::string text{};
  std::string file{};
  std::chrono::milliseconds timeout{120'000};
};

class Shell {
 public:
  virtual ~Shell() = default;

  // Runs a POSIX shell script on a machine: what it wrote to its standard output. Blocks. Errors
  // name the machine as the node: UNAVAILABLE (SSH_FAILED) where there is no way to it,
  // FAILED_PRECONDITION (REMOTE_FAILED) with the end of what the script said where it ended with
  // another status than 0, DEADLINE_EXCEEDED (REMOTE_TIMED_OUT).
  virtual absl::StatusOr<std::string> Run(const Machine& machine, const std::string& script,
                                          const ShellInput& input) = 0;
};

// By the program ssh, with its own configuration, keys and known hosts; never with a password,
// which nobody could type. Connections are kept for a minute under `control_dir`, a folder that
// this user alone can read; a machine has `connect_timeout`, in whole seconds, to answer.
std::unique_ptr<Shell> MakeSshShell(const std::string& control_dir,
                                    std::chrono::seconds connect_timeout);

}  // namespace strata::deploy

#endif  // STRATA_CLI_DEPLOY_SHELL_H_
