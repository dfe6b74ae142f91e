#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/tokenizer/regex_syntax.h"

namespace strata {
namespace {

// Steps of one search, counted by PCRE2: minutes become an error.
constexpr uint32_t kMatchLimit = 50'000'000;
// A search begins with few, and takes what it needs more from a store for the whole text: else a
// pattern that looks ahead far at every character would take the square of the text's length.
constexpr uint32_t kFirstSteps = 1'000;
constexpr uint32_t kMoreSteps = 10;  // Times as many at the next try.
constexpr uint64_t kTextSteps = 100'000'000;
constexpr uint32_t kHeapLimitKib = 512 * 1024;
// Patterns that repeat a group need a large stack on long words; most need none.
constexpr size_t kJitStackStart = 64 * 1024;
constexpr size_t kJitStackMost = size_t{512} << 20;

struct Deleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// One search through one text.
class Search {
 public:
  Search(const pcre2_code* code, const pcre2_match_context* limits, std::string_view text)
      : code_(code),
        context_(pcre2_match_context_copy(const_cast<pcre2_match_context*>(limits))),
        data_(pcre2_match_data_create(1, nullptr)),
        text_(text) {}

  // PCRE2's code of the next match from `offset`, which may be that of an error.
  int Next(size_t offset) {
    for (uint32_t steps = kFirstSteps;;) {
      pcre2_set_match_limit(context_.get(), steps);
      const int code = MatchOnStack(offset);
      if (code != PCRE2_ERROR_MATCHLIMIT || steps == kMatchLimit) {
        return code;
      }
      steps = std::min(steps * kMoreSteps, kMatchLimit);
      if (steps > steps_left_) {
        return code;
      }
      steps_left_ -= steps;
    }
  }
  size_t begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(data_.get())[1]; }

 private:
  // On a larger stack where the usual one is too small.
  int MatchOnStack(size_t offset) {
    const int code = Match(offset);
    if (code != PCRE2_ERROR_JIT_STACKLIMIT || stack_ != nullptr) {
      return code;
    }
    stack_.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    return Match(offset);
  }
  int Match(size_t offset) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), offset,
                       PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }

  const pcre2_code* const code_;
  Owned<pcre2_jit_stack> stack_;
  const Owned<pcre2_match_context> context_;
  const Owned<pcre2_match_data> data_;
  const std::string_view text_;
  uint64_t steps_left_ = kTextSteps;
};

class Pcre2Regex : public Regex {
 public:
  explicit Pcre2Regex(Owned<pcre2_code> code)
      : code_(std::move(code)), limits_(pcre2_match_context_create(nullptr)) {
    pcre2_set_heap_limit(limits_.get(), kHeapLimitKib);
  }

  absl::Status FindAll(std::string_view text, std::vector<TextRange>* matches) const override {
    matches->clear();
    Search search(code_.get(), limits_.get(), text);
    size_t offset = 0;
    size_t last_end = std::string_view::npos;
    while (offset <= text.size()) {
      const int code = search.Next(offset);
      if (code == PCRE2_ERROR_NOMATCH) {
        break;
      }
      if (code < 0) {
        return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_PATTERN_LIMIT",
                     absl::StrCat("the split pattern gives up on this text: ", ErrorText(code)))
            .Limit(absl::StrCat("match_steps=", kMatchLimit, ",text_match_steps=", kTextSteps))
            .Hint("send a shorter text, or one without very long words");
      }
      const bool empty = search.begin() >= search.end();
      if (!empty || search.end() != last_end) {
        matches->push_back(
            {static_cast<uint32_t>(search.begin()), static_cast<uint32_t>(search.end())});
      }
      last_end = offset = search.end();
      if (empty) {  // Go on behind the next character.
        do {
          ++offset;
        } while (offset < text.size() && (static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80);
      }
    }
    return absl::OkStatus();
  }

 private:
  const Owned<pcre2_code> code_;
  const Owned<pcre2_match_context> limits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  Owned<pcre2_code> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                    &offset, context.get()));
  if (compiled == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                 absl::StrCat("split pattern \"", std::string(pattern),
                              "\" does not compile: ", ErrorText(code)));
  }
  // Without a JIT for this machine the same matches are found more slowly.
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
  return std::unique_ptr<Regex>(std::make_unique<Pcre2Regex>(std::move(compiled)));
}

}  // namespace strata
