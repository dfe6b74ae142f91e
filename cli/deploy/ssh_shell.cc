#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/deploy/shell.h"
#include "common/platform/run_program.h"
#include "common/printable.h"
#include "common/shell_word.h"
#include "common/status.h"

namespace strata::deploy {
namespace {

constexpr int kSshFailed = 255;  // ssh's own status; of a script it would be a rare one.
constexpr size_t kMaxOutputBytes = size_t{8} << 20;
constexpr size_t kShownOutputBytes = 1000;

// The end of a text, where programs say why they stop; in one line.
std::string EndOf(const std::string& text) {
  const std::string trimmed(absl::StripAsciiWhitespace(text));
  const size_t from = trimmed.size() > kShownOutputBytes ? trimmed.size() - kShownOutputBytes : 0;
  return Printable(trimmed.substr(from), kShownOutputBytes);
}

class SshShell : public Shell {
 public:
  SshShell(std::string control_dir, std::chrono::seconds connect_timeout)
      : control_dir_(std::move(control_dir)), connect_timeout_(connect_timeout) {}

  absl::StatusOr<std::string> Run(const Machine& machine, const std::string& script,
                                  const ShellInput& input) override {
    const std::vector<std::string> words = {
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        absl::StrCat("ConnectTimeout=", connect_timeout_.count()),
        "-o",
        "ServerAliveInterval=10",
        "-o",
        "ControlMaster=auto",
        "-o",
        "ControlPersist=60",
        "-o",
        absl::StrCat("ControlPath=", control_dir_, "/%C"),
        machine.ssh,
        "sh -c " + ShellWord(script),
    };
    const auto ran = RunProgram(words, {.input = input.text,
                                        .input_file = input.file,
                                        .timeout = input.timeout,
                                        .max_output_bytes = kMaxOutputBytes});
    if (ReasonOf(ran.status()) == "PROGRAM_TIMED_OUT") {
      return Error(absl::StatusCode::kDeadlineExceeded, "REMOTE_TIMED_OUT",
                   absl::StrCat("the machine ", machine.name, " did not finish within ",
                                input.timeout.count() / 1000, " s"))
          .Node(machine.name)
          .Hint("look at it there, and run this again: what is done is not done twice");
    }
    RETURN_IF_ERROR(ran.status());
    if (ran->exit_status == kSshFailed) {
      return Error(absl::StatusCode::kUnavailable, "SSH_FAILED",
                   absl::StrCat("ssh does not get to the machine ", machine.name, ": ",
                                EndOf(ran->error)))
          .Node(machine.name)
          .Hint(absl::StrCat("`ssh ", ShellWord(machine.ssh),
                             " true` has to work without a question: a key, and a known host"));
    }
    if (ran->exit_status != 0) {
      return Error(absl::StatusCode::kFailedPrecondition, "REMOTE_FAILED",
                   absl::StrCat("on the machine ", machine.name, ": ",
                                EndOf(ran->error.empty() ? ran->out : ran->error), " (status ",
                                ran->exit_status, ")"))
          .Node(machine.name)
          .Hint("mend it there, and run this again: what is done is not done twice");
    }
    return ran->out;
  }

 private:
  const std::string control_dir_;
  const std::chrono::seconds connect_timeout_;
};

}  // namespace

std::unique_ptr<Shell> MakeSshShell(const std::string& control_dir,
                                    std::chrono::seconds connect_timeout) {
  return std::make_unique<SshShell>(control_dir, connect_timeout);
}

}  // namespace strata::deploy
