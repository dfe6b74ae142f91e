#include "text/masks/mask_program.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "text/grammar/token_mask.h"
#include "text/masks/mask_request.h"
#include "text/masks/mask_time.h"

namespace strata {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsLimited = false;  // Sanitizers reserve more than there is.
#else
constexpr bool kMemoryIsLimited = true;
#endif

// Where they are closed one by one.
constexpr long kMostInherited = 65536;  // NOLINT(google-runtime-int)

// Others come first on the processor.
constexpr int kNiceness = 5;

// Never more than there is: only the privileged may raise a hard limit.
bool SetLimit(int resource, uint64_t limit) {
  rlimit now = {};
  if (getrlimit(resource, &now) != 0) {
    return false;
  }
  const rlim_t most = std::min<rlim_t>(limit, now.rlim_max);
  const rlimit both = {.rlim_cur = most, .rlim_max = most};
  return setrlimit(resource, &both) == 0;
}

bool ReadToEnd(int in, std::string* bytes) {
  std::array<char, 64 << 10> piece;
  while (true) {
    const ssize_t size = read(in, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size <= 0) {
      return size == 0;
    }
    bytes->append(piece.data(), static_cast<size_t>(size));
  }
}

bool WriteAll(int out, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = write(out, bytes.data(), bytes.size());
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

MaskAnswer Refused(const absl::Status& why) {
  return {.kind = ReasonOf(why) == "GRAMMAR_TOO_EXPENSIVE" ? MaskAnswer::Kind::kTooExpensive
                                                           : MaskAnswer::Kind::kInvalid,
          .text = std::string(why.message())};
}

// Those that take too long are made here alone, within the process's limits.
absl::Status CheckFirstMask(const std::shared_ptr<const CompiledGrammar>& grammar,
                            const MaskTimeLimits& limits) {
  ASSIGN_OR_RETURN(const auto matcher, TokenMatcher::Make(grammar));
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  const nanoseconds begin = ThreadTime();
  RETURN_IF_ERROR(matcher->FillMask(mask));
  return MaskTime(limits).Add(ThreadTime() - begin);
}

MaskAnswer AnswerTo(const MaskRequest& request, const MaskTimeLimits& limits) {
  const auto vocabulary = TokenVocabulary::Make(request.tokens, request.stop_ids);
  if (!vocabulary.ok()) {
    return Refused(vocabulary.status());
  }
  const auto compiled = CompiledGrammar::Compile(request.ebnf, *vocabulary);
  if (!compiled.ok()) {
    return Refused(compiled.status());
  }
  if (const absl::Status slow = CheckFirstMask(*compiled, limits); !slow.ok()) {
    return Refused(slow);
  }
  const auto serialized = (*compiled)->Serialize();
  if (!serialized.ok()) {
    return Refused(serialized.status());
  }
  return {.kind = MaskAnswer::Kind::kCompiled, .text = *serialized};
}

}  // namespace

void CloseInherited() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0U) == 0) {
    return;
  }
#endif
  const auto most = static_cast<int>(std::min(sysconf(_SC_OPEN_MAX), kMostInherited));
  for (int fd = STDERR_FILENO + 1; fd < most; ++fd) {
    close(fd);
  }
}

MaskProgramLimits MaskProgramLimitsOf(char** arguments) {
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  return {.cpu_seconds = number(0),
          .memory_bytes = number(1),
          .mask_time = milliseconds(static_cast<int64_t>(number(2)))};
}

int RunMaskProgram(int in, int out, const MaskProgramLimits& limits) {
  const bool limited =
      (limits.cpu_seconds == 0 || SetLimit(RLIMIT_CPU, limits.cpu_seconds)) &&
      SetLimit(RLIMIT_CORE, 1) &&
      (!kMemoryIsLimited || limits.memory_bytes == 0 || SetLimit(RLIMIT_AS, limits.memory_bytes));
  if (!limited) {
    return 2;
  }
  (void)!nice(kNiceness);
  std::string bytes;
  if (!ReadToEnd(in, &bytes)) {
    return 2;
  }
  const std::optional<MaskRequest> request = DecodeMaskRequest(bytes);
  if (!request) {
    return 2;
  }
  return WriteAll(out, Encode(AnswerTo(*request, MaskTimeLimits::OfOne(limits.mask_time)))) ? 0 : 2;
}

}  // namespace strata
