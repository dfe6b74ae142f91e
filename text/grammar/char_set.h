// Sets of Unicode's scalar values. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_CHAR_SET_H_
#define STRATA_TEXT_GRAMMAR_CHAR_SET_H_

#include <compare>
#include <vector>

namespace strata {

// The last character of Unicode.
inline constexpr char32_t kLastCharacter = 0x10FFFF;

class CharSet {
 public:
  struct Range {
    char32_t low;
    char32_t high;  // Inclusive.
    friend auto operator<=>(const Range& a, const Range& b) = default;
  };

  CharSet() = default;
  // Of any ranges; surrogates are left out.
  explicit CharSet(std::vector<Range> ranges);
  static CharSet Of(char32_t low, char32_t high) { return CharSet({{low, high}}); }
  static CharSet Of(char32_t character) { return Of(character, character); }
  static CharSet All() { return Of(0, 0x10FFFF); }

  // Ascending; none touches another.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool Contains(char32_t character) const;

  CharSet Union(const CharSet& other) const;
  CharSet Intersection(const CharSet& other) const;
  CharSet Complement() const;
  CharSet Minus(const CharSet& other) const { return Intersection(other.Complement()); }

  friend auto operator<=>(const CharSet& a, const CharSet& b) = default;

 private:
  std::vector<Range> ranges_;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_CHAR_SET_H_
