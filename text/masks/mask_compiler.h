// Compiles grammars to masks in processes of their own, and keeps what was compiled.
#ifndef STRATA_TEXT_MASKS_MASK_COMPILER_H_
#define STRATA_TEXT_MASKS_MASK_COMPILER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "text/grammar/token_mask.h"

namespace strata {

struct MaskCompilerOptions {
  // A program that calls RunMaskProgram on its standard input and output, and its arguments.
  std::vector<std::string> command;
  // A grammar that becomes more is refused.
  size_t max_answer_bytes = 32 << 20;
  // A process that has not answered for so long is ended; 0: never.
  nanoseconds timeout{0};
  // What is kept, by CompiledGrammar::bytes(); what was used longest ago goes first. A grammar
  // above it is not kept.
  size_t max_kept_bytes = 256 << 20;
};

// A vocabulary as it is, beside what is made of it.
struct MaskVocabulary {
  static absl::StatusOr<std::shared_ptr<const MaskVocabulary>> Make(std::vector<std::string> tokens,
                                                                    std::vector<int32_t> stop_ids);

  std::vector<std::string> tokens;
  std::vector<int32_t> stop_ids;
  std::shared_ptr<const TokenVocabulary> compiled;
  std::string digest;
};

// Any thread; a call waits for its process.
class MaskCompiler {
 public:
  explicit MaskCompiler(MaskCompilerOptions options) : options_(std::move(options)) {}

  // Of EbnfOf's result. GRAMMAR_INVALID with what the compiler says; GRAMMAR_TOO_EXPENSIVE where
  // the process ended at one of its limits, or otherwise; GRAMMAR_PROCESS_FAILED where there is
  // none; STOPPING after Stop.
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const std::string& ebnf, const std::shared_ptr<const MaskVocabulary>& vocabulary);
  // Ends the processes, and starts none any more.
  void Stop();
  absl::Status CheckRuns() const;  // STOPPING after Stop.

  // What Compile gave for a grammar of this digest, if it is kept; null else.
  std::shared_ptr<const CompiledGrammar> Kept(const std::string& digest) { return Find(digest); }
  static std::string DigestOf(const std::string& ebnf, const MaskVocabulary& vocabulary);

  // Processes that were started so far; grammars that are kept, and their bytes.
  uint64_t started() const;
  size_t kept_grammars() const;
  size_t kept_bytes() const;

 private:
  struct Entry {
    std::shared_ptr<const CompiledGrammar> grammar;
    std::list<std::string>::iterator use;
  };

  std::shared_ptr<const CompiledGrammar> Find(const std::string& digest);
  void Keep(const std::string& digest, std::shared_ptr<const CompiledGrammar> grammar);
  absl::StatusOr<std::string> RunProcess(const std::string& request);
  void Running(pid_t process);
  void Ended(pid_t process);

  const MaskCompilerOptions options_;
  mutable Mutex mutex_;
  std::map<std::string, Entry> kept_ STRATA_GUARDED_BY(mutex_);
  std::list<std::string> uses_ STRATA_GUARDED_BY(mutex_);  // The last one was used last.
  size_t kept_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  uint64_t started_ STRATA_GUARDED_BY(mutex_) = 0;
  bool stopped_ STRATA_GUARDED_BY(mutex_) = false;
  std::set<pid_t> running_ STRATA_GUARDED_BY(mutex_);  // None of them is reaped.
};

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_MASK_COMPILER_H_
