// What a tokenizer.json looks for in text: {"String": ...} or {"Regex": ...}.
#ifndef STRATA_TEXT_TOKENIZER_TEXT_PATTERN_H_
#define STRATA_TEXT_TOKENIZER_TEXT_PATTERN_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/pre_tokenized.h"
#include "text/tokenizer/regex.h"

namespace strata {

// Const after construction; any thread.
class TextPattern {
 public:
  // `literal` is not empty.
  static TextPattern OfLiteral(std::string literal);
  // `expression` in Oniguruma's syntax; see regex_syntax.h.
  static absl::StatusOr<TextPattern> OfRegex(std::string_view expression);

  // All matches in well-formed `text`, from the left, without overlap. Replaces *matches.
  // RESOURCE_EXHAUSTED when an expression gives up.
  absl::Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;
  // Empty for an expression.
  const std::string& literal() const { return literal_; }

 private:
  TextPattern() = default;

  std::string literal_;
  std::unique_ptr<Regex> regex_;  // Null for a literal.
};

// `text` with `content` in place of each of `matches`.
std::string ReplaceMatches(std::string_view text, std::span<const TextRange> matches,
                           std::string_view content);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_TEXT_PATTERN_H_
