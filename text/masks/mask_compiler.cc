#include "text/masks/mask_compiler.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/status.h"
#include "text/masks/mask_request.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace strata {
namespace {

Error ProcessFailed(std::string_view what) {
  return Error(
      absl::StatusCode::kUnavailable, "GRAMMAR_PROCESS_FAILED",
      absl::StrCat("no process could be started that compiles grammars: ", std::string(what)));
}

absl::Status TooExpensive(std::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "GRAMMAR_TOO_EXPENSIVE",
               absl::StrCat("compiling the grammar takes more than it may: ", std::string(why)))
      .Hint("make the schema, pattern or grammar smaller, and its counts lower");
}

// One end of a connection, which is closed with this.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) {
      close(std::exchange(fd_, -1));
    }
  }

  // False where the other end is gone.
  bool SendAll(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t size = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) {
        continue;
      }
      if (size <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }

  // Up to the end, or until there are more than `max` bytes. False where the end does not come in
  // time (0: any is).
  bool ReceiveAll(size_t max, nanoseconds timeout, std::string* bytes) const {
    const auto end = std::chrono::steady_clock::now() + timeout;
    std::array<char, 64 << 10> piece;
    while (bytes->size() <= max) {
      if (timeout.count() > 0 && !Readable(end)) {
        return false;
      }
      const ssize_t size = recv(fd_, piece.data(), piece.size(), 0);
      if (size < 0 && errno == EINTR) {
        continue;
      }
      if (size <= 0) {
        break;
      }
      bytes->append(piece.data(), static_cast<size_t>(size));
    }
    return true;
  }

 private:
  // Waits until there is something, or the end.
  bool Readable(std::chrono::steady_clock::time_point end) const {
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
      pollfd wanted = {.fd = fd_, .events = POLLIN, .revents = 0};
      const int ready = left.count() <= 0 ? 0 : poll(&wanted, 1, static_cast<int>(left.count()));
      if (ready >= 0 || errno != EINTR) {
        return ready > 0;
      }
    }
  }

  int fd_;
};

// How the process ended, in words; empty where all is well.
std::string EndOf(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) {
      return absl::StrCat("its end is not known: ", std::strerror(errno));
    }
  }
  if (WIFSIGNALED(status)) {
    return absl::StrCat("it was ended by signal ", WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "" : absl::StrCat("it ended with ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MaskVocabulary>> MaskVocabulary::Make(
    std::vector<std::string> tokens, std::vector<int32_t> stop_ids) {
  auto vocabulary = std::make_shared<MaskVocabulary>();
  ASSIGN_OR_RETURN(vocabulary->compiled, TokenVocabulary::Make(tokens, stop_ids));
  vocabulary->tokens = std::move(tokens);
  vocabulary->stop_ids = std::move(stop_ids);
  vocabulary->digest = Sha256Hex(Encode(
      MaskRequest{.tokens = vocabulary->tokens, .stop_ids = vocabulary->stop_ids, .ebnf = ""}));
  return vocabulary;
}

std::string MaskCompiler::DigestOf(const std::string& ebnf, const MaskVocabulary& vocabulary) {
  return Sha256Hex(vocabulary.digest + ebnf);
}

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> MaskCompiler::Compile(
    const std::string& ebnf, const std::shared_ptr<const MaskVocabulary>& vocabulary) {
  const std::string digest = DigestOf(ebnf, *vocabulary);
  if (auto kept = Find(digest)) {
    return kept;
  }
  RETURN_IF_ERROR(CheckRuns());
  {
    const MutexLock lock(&mutex_);
    ++started_;
  }
  ASSIGN_OR_RETURN(
      const std::string bytes,
      RunProcess(Encode(MaskRequest{
          .tokens = vocabulary->tokens, .stop_ids = vocabulary->stop_ids, .ebnf = ebnf})));
  const std::optional<MaskAnswer> answer = DecodeMaskAnswer(bytes);
  if (!answer) {
    return ProcessFailed("it gave no answer");
  }
  if (answer->kind == MaskAnswer::Kind::kTooExpensive) {
    return TooExpensive(answer->text);
  }
  if (answer->kind != MaskAnswer::Kind::kCompiled) {
    return Error(absl::StatusCode::kInvalidArgument, "GRAMMAR_INVALID", answer->text);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const CompiledGrammar> grammar,
                   CompiledGrammar::Deserialize(answer->text, vocabulary->compiled));
  Keep(digest, grammar);
  return grammar;
}

absl::StatusOr<std::string> MaskCompiler::RunProcess(const std::string& request) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return ProcessFailed(std::strerror(errno));
  }
  const Socket ours(ends[0]);
  Socket theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs.fd(), STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : options_.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int failed =
      posix_spawn(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  theirs.Close();
  if (failed != 0) {
    return ProcessFailed(absl::StrCat(options_.command[0], ": ", std::strerror(failed)));
  }
  Running(process);
  // A process that is gone takes no more; how it ended says why.
  if (ours.SendAll(request)) {
    shutdown(ours.fd(), SHUT_WR);
  }
  std::string bytes;
  const bool in_time = ours.ReceiveAll(options_.max_answer_bytes, options_.timeout, &bytes);
  const bool too_long = bytes.size() > options_.max_answer_bytes;
  shutdown(ours.fd(), SHUT_RDWR);
  if (!in_time) {
    kill(process, SIGKILL);
  }
  Ended(process);
  const std::string end = EndOf(process);
  RETURN_IF_ERROR(CheckRuns());
  if (!in_time) {
    return TooExpensive(
        absl::StrCat("it was not done within ",
                     std::chrono::duration_cast<milliseconds>(options_.timeout).count(), " ms"));
  }
  if (too_long || !end.empty()) {
    return TooExpensive(too_long ? "what it becomes is too long" : end);
  }
  return bytes;
}

void MaskCompiler::Running(pid_t process) {
  const MutexLock lock(&mutex_);
  running_.insert(process);
  if (stopped_) {
    kill(process, SIGKILL);
  }
}

void MaskCompiler::Ended(pid_t process) {
  const MutexLock lock(&mutex_);
  running_.erase(process);
}

absl::Status MaskCompiler::CheckRuns() const {
  const MutexLock lock(&mutex_);
  return !stopped_
             ? absl::OkStatus()
             : Error(absl::StatusCode::kUnavailable, "STOPPING", "no more grammars are compiled")
                   .Hint("send the request again once the coordinator is back");
}

void MaskCompiler::Stop() {
  const MutexLock lock(&mutex_);
  stopped_ = true;
  for (const pid_t process : running_) {
    kill(process, SIGKILL);
  }
}

std::shared_ptr<const CompiledGrammar> MaskCompiler::Find(const std::string& digest) {
  const MutexLock lock(&mutex_);
  const auto kept = kept_.find(digest);
  if (kept == kept_.end()) {
    return nullptr;
  }
  uses_.splice(uses_.end(), uses_, kept->second.use);
  return kept->second.grammar;
}

void MaskCompiler::Keep(const std::string& digest, std::shared_ptr<const CompiledGrammar> grammar) {
  const MutexLock lock(&mutex_);
  const size_t bytes = grammar->bytes();
  if (kept_.contains(digest) || bytes > options_.max_kept_bytes) {
    return;
  }
  while (kept_bytes_ + bytes > options_.max_kept_bytes) {
    const auto oldest = kept_.find(uses_.front());
    kept_bytes_ -= oldest->second.grammar->bytes();
    kept_.erase(oldest);
    uses_.pop_front();
  }
  uses_.push_back(digest);
  kept_.emplace(digest, Entry{std::move(grammar), std::prev(uses_.end())});
  kept_bytes_ += bytes;
}

uint64_t MaskCompiler::started() const {
  const MutexLock lock(&mutex_);
  return started_;
}

size_t MaskCompiler::kept_grammars() const {
  const MutexLock lock(&mutex_);
  return kept_.size();
}

size_t MaskCompiler::kept_bytes() const {
  const MutexLock lock(&mutex_);
  return kept_bytes_;
}

}  // namespace strata
