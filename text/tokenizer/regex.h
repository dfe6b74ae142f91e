// A split pattern, compiled. Const and usable by any thread.
#ifndef STRATA_TEXT_TOKENIZER_REGEX_H_
#define STRATA_TEXT_TOKENIZER_REGEX_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/pre_tokenized.h"

namespace strata {

class Regex {
 public:
  // `pattern` in Oniguruma's syntax; see regex_syntax.h.
  static absl::StatusOr<std::unique_ptr<Regex>> Compile(std::string_view pattern);
  virtual ~Regex() = default;

  // All matches in well-formed `text`, from the left, without overlap; empty ones too. Replaces
  // *matches. RESOURCE_EXHAUSTED when the pattern takes too many steps on this text.
  virtual absl::Status FindAll(std::string_view text, std::vector<TextRange>* matches) const = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_REGEX_H_
