#include "cli/doctor/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/status.h"

extern char** environ;

namespace strata::cli {
namespace {

using std::chrono::steady_clock;

struct Pipe {
  int read = -1;
  int write = -1;
  bool Open() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return false;
    for (const int end : ends) (void)fcntl(end, F_SETFD, FD_CLOEXEC);
    read = ends[0];
    write = ends[1];
    return true;
  }
  void CloseWrite() {
    if (write >= 0) close(write);
    write = -1;
  }
  ~Pipe() {
    CloseWrite();
    if (read >= 0) close(read);
  }
};

// Reads both to their ends, or until `until`. False: it is later than that.
bool ReadBoth(Pipe* out, Pipe* err, steady_clock::time_point until, size_t max_bytes,
              ProgramRun* run) {
  std::array<pollfd, 2> waiting{{{.fd = out->read, .events = POLLIN, .revents = 0},
                                 {.fd = err->read, .events = POLLIN, .revents = 0}}};
  std::array<std::string*, 2> texts{&run->out, &run->err};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now()).count();
    if (left <= 0 || poll(waiting.data(), waiting.size(), static_cast<int>(left)) == 0) {
      return false;
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t n = read(waiting[i].fd, buffer.data(), buffer.size());
      if (n <= 0) {
        waiting[i].fd = -1;
        continue;
      }
      const size_t room = max_bytes - std::min(max_bytes, texts[i]->size());
      texts[i]->append(buffer.data(), std::min(static_cast<size_t>(n), room));
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<ProgramRun> RunProgram(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& variables,
    std::chrono::milliseconds timeout, size_t max_output_bytes) {
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const bool replaced = std::any_of(variables.begin(), variables.end(), [&](const auto& one) {
      return entry.starts_with(one.first + "=");
    });
    if (!replaced) environment.emplace_back(entry);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (const std::string& entry : environment) env.push_back(const_cast<char*>(entry.c_str()));
  env.push_back(nullptr);

  Pipe out;
  Pipe err;
  if (!out.Open() || !err.Open()) {
    return Error(absl::StatusCode::kResourceExhausted, "NO_PIPE", std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), env.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return Error(absl::StatusCode::kNotFound, "NO_PROGRAM",
                 command.front() + " cannot be started: " + std::strerror(failed));
  }
  out.CloseWrite();
  err.CloseWrite();
  ProgramRun run;
  const bool ended = ReadBoth(&out, &err, steady_clock::now() + timeout, max_output_bytes, &run);
  if (!ended) {
    kill(child, SIGKILL);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return Error(
        absl::StatusCode::kDeadlineExceeded, "PROGRAM_HANGS",
        command.front() + " has not ended within " + std::to_string(timeout.count()) + " ms");
  }
  if (WIFEXITED(status)) {
    run.exit_status = WEXITSTATUS(status);
  } else {
    run.signal = WTERMSIG(status);
  }
  return run;
}

}  // namespace strata::cli
