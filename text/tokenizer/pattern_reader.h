// The smallest parts of a split pattern, as Oniguruma's Ruby syntax writes them.
#ifndef STRATA_TEXT_TOKENIZER_PATTERN_READER_H_
#define STRATA_TEXT_TOKENIZER_PATTERN_READER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// Goes over a pattern, which outlives it and is UTF-8, from its beginning.
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  bool AtEnd() const { return at_ >= pattern_.size(); }
  // A byte from here on; 0 behind the end.
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  std::string_view Rest() const { return pattern_.substr(at_); }
  void Skip(size_t bytes = 1) { at_ += bytes; }
  // Where there is one.
  char Next() { return pattern_[at_++]; }
  char32_t NextCharacter();
  // Whether the text is next; goes behind it then.
  bool Take(std::string_view text);

  // Least and most, which may be without bound.
  using Repeats = std::pair<unsigned, std::optional<unsigned>>;
  // {n} {n,} {n,m} {,m}; nothing, and nothing taken, when it is no interval.
  std::optional<Repeats> Interval();
  // The class items, for PCRE2, that the escape `c`, already taken, stands for; "" if it stands for
  // none.
  absl::StatusOr<std::string> ClassEscape(char c);
  // The character that the escape `c`, already taken, stands for.
  absl::StatusOr<char32_t> CharacterEscape(char c);

  // Of the pattern, at this place.
  absl::Status Invalid(std::string_view what) const;
  absl::Status Unsupported(std::string_view what) const;

 private:
  std::optional<unsigned> Number();
  // \p{...}, \P{...}, \p{^...} behind the "\p".
  absl::StatusOr<std::string> Property(bool negated);
  // One code point behind "\x" or "\u".
  absl::StatusOr<char32_t> Hex(char kind);

  const std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PATTERN_READER_H_
