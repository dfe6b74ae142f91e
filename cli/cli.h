// The `strata` command as a function, so that tests call it as main() does.
#ifndef STRATA_CLI_CLI_H_
#define STRATA_CLI_CLI_H_

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"

namespace strata::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// What Ctrl-C does at the moment. Any thread.
class Interrupts {
 public:
  // Runs `handler` at the next Ctrl-C, on the thread that calls Fire(). Empty: none.
  void Set(std::function<void()> handler) STRATA_EXCLUDES(mutex_);
  // Ctrl-C came. False: nobody handles it, the process should end.
  bool Fire() STRATA_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::function<void()> handler_ STRATA_GUARDED_BY(mutex_);
};

struct TerminalSize {
  size_t rows = 0;
  size_t columns = 0;
};

// What the command sees of the process. The streams outlive the run.
struct Environment {
  std::istream* in = nullptr;
  std::ostream* out = nullptr;  // Answers and documents.
  std::ostream* err = nullptr;  // Errors, progress.
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  std::function<TerminalSize()> terminal_size;  // Of `out`, now; may be empty.
  Interrupts* interrupts = nullptr;
  std::function<std::optional<std::string>(const std::string& name)> variable;
};

// Runs `strata ARGS...` (without the program's name) and gives its exit code.
int RunCli(const std::vector<std::string>& args, const Environment& environment);

}  // namespace strata::cli

#endif  // STRATA_CLI_CLI_H_
