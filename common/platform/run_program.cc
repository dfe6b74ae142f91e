#include "common/platform/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

extern char** environ;

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kPieceBytes = size_t{64} << 10;
// How long what its children still write is waited for once the program itself has ended.
constexpr milliseconds kLastWords{200};
// How long a program that is to end may take.
constexpr milliseconds kLongestFarewell{1000};

// A descriptor of ours.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void Close() {
    if (fd_ >= 0) {
      close(std::exchange(fd_, -1));
    }
  }
  void Set(int fd) {
    Close();
    fd_ = fd;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Both ends of a stream: a socket, which can be written to without a signal when nobody reads.
struct Stream {
  Descriptor ours, theirs;

  bool Open() {
    std::array<int, 2> ends;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return false;
    }
    ours.Set(ends[0]);
    theirs.Set(ends[1]);
    return true;
  }
};

absl::Status Failed(const std::string& program, const std::string& why) {
  return Error(absl::StatusCode::kInternal, "PROGRAM_FAILED",
               absl::StrCat("cannot run ", program, ": ", why));
}

// Reads what there is. False: the other end is closed.
bool ReadSome(int fd, size_t most, std::string* out) {
  std::array<char, kPieceBytes> piece;
  const ssize_t got = read(fd, piece.data(), piece.size());
  if (got > 0) {
    const size_t room = most - std::min(most, out->size());
    out->append(piece.data(), std::min(room, static_cast<size_t>(got)));
  }
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

#ifdef __linux__
constexpr bool kCanEndWithThread = true;

// As posix_spawnp with no signal blocked, but that the program gets SIGTERM when this thread ends.
// An errno.
int SpawnWithThread(pid_t* process, char* const* arguments, char* const* environment,
                    const std::array<int, 3>& streams) {
  std::array<int, 2> ends;  // By which the child says why it does not become the program.
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return errno;
  }
  const pid_t parent = getpid();
  *process = fork();
  if (*process == 0) {  // Nothing from here on but what a signal handler may do.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int error = getppid() == parent ? 0 : ESRCH;  // It has ended before.
    for (int fd = 0; fd < 3 && error == 0; ++fd) {
      error = dup2(streams[static_cast<size_t>(fd)], fd) < 0 ? errno : 0;
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (error == 0) {
      execvpe(arguments[0], arguments, environment);
      error = errno;
    }
    (void)!write(ends[1], &error, sizeof(error));
    _exit(127);
  }
  int error = *process < 0 ? errno : 0;
  close(ends[1]);
  if (error == 0) {
    ssize_t got = 0;
    while ((got = read(ends[0], &error, sizeof(error))) < 0 && errno == EINTR) {
    }
    if (got > 0) {
      waitpid(*process, nullptr, 0);
    }
  }
  close(ends[0]);
  return error;
}
#else
constexpr bool kCanEndWithThread = false;

int SpawnWithThread(pid_t* /*process*/, char* const* /*arguments*/, char* const* /*environment*/,
                    const std::array<int, 3>& /*streams*/) {
  return ENOSYS;
}
#endif

// A program, and the streams between it and us.
class Program {
 public:
  explicit Program(const ProgramOptions& options) : options_(options) {}

  // Errors of RunProgram, but for the time that it takes.
  absl::Status Start(const std::vector<std::string>& words) {
    const std::string& name = words.front();
    Descriptor file;
    if (!options_.input_file.empty()) {
      file.Set(open(options_.input_file.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file.open()) {
        return Failed(
            name, absl::StrCat("cannot read ", options_.input_file, ": ", std::strerror(errno)));
      }
    }
    if (!in_.Open() || !out_.Open() || !error_.Open()) {
      return Failed(name, std::strerror(errno));
    }
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string& word : words) {
      arguments.push_back(const_cast<char*>(word.c_str()));
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, file.open() ? file.get() : in_.theirs.get(),
                                     STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_.theirs.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, error_.theirs.get(), STDERR_FILENO);
    // Signals that this process blocks, as a service does to wait for them, end the program.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    std::vector<std::string> variables;
    std::vector<char*> environment = Environment(&variables);
    const int failed = options_.ends_with_thread && kCanEndWithThread
                           ? SpawnWithThread(&process_, arguments.data(), environment.data(),
                                             {file.open() ? file.get() : in_.theirs.get(),
                                              out_.theirs.get(), error_.theirs.get()})
                           : posix_spawnp(&process_, arguments[0], &actions, &attributes,
                                          arguments.data(), environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == ENOENT) {
      return Error(absl::StatusCode::kNotFound, "PROGRAM_MISSING",
                   absl::StrCat("there is no program ", name, " in PATH"))
          .Hint(absl::StrCat("install ", name));
    }
    if (failed != 0) {
      return Failed(name, std::strerror(failed));
    }
    for (Stream* stream : {&in_, &out_, &error_}) {
      stream->theirs.Close();
    }
    if (options_.input.empty()) {
      in_.ours.Close();
    }
    return absl::OkStatus();
  }

  // Writes and reads until the program has ended and closed its outputs. False: it took too long,
  // and was killed.
  bool Await(ProgramResult* result) {
    const Clock::time_point end = Clock::now() + options_.timeout;
    Clock::time_point last_words = end;
    bool ended = false;
    while (!ended || out_.ours.open() || error_.ours.open()) {
      const Clock::time_point now = Clock::now();
      if (ended && now >= last_words) {
        break;
      }
      if (!ended && now >= end) {
        kill(process_, SIGKILL);
        Reap(0);
        return false;
      }
      Exchange(result);
      if (!ended && Reap(WNOHANG)) {
        ended = true;
        last_words = Clock::now() + kLastWords;
      }
    }
    result->exit_status = ExitStatus();
    return true;
  }

  // Whether it has ended; reads and writes what can be.
  bool Look(ProgramResult* result) {
    Exchange(result);
    if (!Reap(WNOHANG)) {
      return false;
    }
    Exchange(result);
    result->exit_status = ExitStatus();
    return true;
  }

  // Not once it has ended.
  void End() {
    kill(process_, SIGTERM);
    const Clock::time_point end = Clock::now() + kLongestFarewell;
    ProgramResult ignored;
    while (!Look(&ignored)) {
      if (Clock::now() >= end) {
        kill(process_, SIGKILL);
        Reap(0);
        return;
      }
    }
  }

 private:
  static constexpr int kPollMs = 20;

  // This process's, with the variables of the options in place of its own; `texts` holds these.
  std::vector<char*> Environment(std::vector<std::string>* texts) const {
    for (const auto& [name, value] : options_.variables) {
      texts->push_back(absl::StrCat(name, "=", value));
    }
    std::vector<char*> environment;
    for (char** own = environ; *own != nullptr; ++own) {
      const std::string_view text = *own;
      const bool set =
          std::any_of(options_.variables.begin(), options_.variables.end(), [&](const auto& one) {
            return text.starts_with(one.first) && text.substr(one.first.size()).starts_with('=');
          });
      if (!set) {
        environment.push_back(*own);
      }
    }
    for (std::string& text : *texts) {
      environment.push_back(text.data());
    }
    environment.push_back(nullptr);
    return environment;
  }

  int ExitStatus() const {
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

  // Whether it has ended.
  bool Reap(int flags) {
    pid_t got = 0;
    while ((got = waitpid(process_, &status_, flags)) < 0 && errno == EINTR) {
    }
    return got != 0;
  }

  // What can be written and read now, after a short wait at most.
  void Exchange(ProgramResult* result) {
    std::array<pollfd, 3> polled = {pollfd{in_.ours.get(), POLLOUT, 0},
                                    pollfd{out_.ours.get(), POLLIN, 0},
                                    pollfd{error_.ours.get(), POLLIN, 0}};
    poll(polled.data(), polled.size(), kPollMs);
    if (polled[0].revents != 0) {
      const ssize_t got =
          send(in_.ours.get(), options_.input.data() + sent_,
               std::min(options_.input.size() - sent_, kPieceBytes), MSG_NOSIGNAL | MSG_DONTWAIT);
      sent_ += got > 0 ? static_cast<size_t>(got) : 0;
      if (sent_ == options_.input.size() || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        in_.ours.Close();
      }
    }
    if (polled[1].revents != 0 &&
        !ReadSome(out_.ours.get(), options_.max_output_bytes, &result->out)) {
      out_.ours.Close();
    }
    if (polled[2].revents != 0 &&
        !ReadSome(error_.ours.get(), options_.max_output_bytes, &result->error)) {
      error_.ours.Close();
    }
  }

  const ProgramOptions& options_;
  Stream in_, out_, error_;
  pid_t process_ = 0;
  size_t sent_ = 0;
  int status_ = 0;
};

}  // namespace

absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& words,
                                         const ProgramOptions& options) {
  Program program(options);
  RETURN_IF_ERROR(program.Start(words));
  ProgramResult result;
  if (!program.Await(&result)) {
    const auto timeout_s = std::chrono::duration_cast<std::chrono::seconds>(options.timeout);
    return Error(absl::StatusCode::kDeadlineExceeded, "PROGRAM_TIMED_OUT",
                 absl::StrCat(words.front(), " did not end within ", timeout_s.count(),
                              " s and was killed"));
  }
  return result;
}

class RunningProgram::Impl {
 public:
  explicit Impl(const ProgramOptions& options) : options_(options), program_(options_) {}

  absl::Status Start(const std::vector<std::string>& words) {
    RETURN_IF_ERROR(program_.Start(words));
    runs_ = true;
    return absl::OkStatus();
  }
  ~Impl() {
    if (runs_) {
      program_.End();
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool HasEnded() {
    if (runs_) {
      runs_ = !program_.Look(&result_);
    }
    return !runs_;
  }
  const ProgramResult& result() const { return result_; }

 private:
  const ProgramOptions options_;
  Program program_;
  ProgramResult result_;
  bool runs_ = false;
};

absl::StatusOr<std::unique_ptr<RunningProgram>> RunningProgram::Start(
    const std::vector<std::string>& words, const ProgramOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  RETURN_IF_ERROR(impl->Start(words));
  return std::unique_ptr<RunningProgram>(new RunningProgram(std::move(impl)));
}

RunningProgram::RunningProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunningProgram::~RunningProgram() = default;
bool RunningProgram::HasEnded() { return impl_->HasEnded(); }
const ProgramResult& RunningProgram::result() const { return impl_->result(); }

}  // namespace strata
