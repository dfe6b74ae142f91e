// Numbers of JSON, exact. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_DECIMAL_H_
#define STRATA_TEXT_GRAMMAR_DECIMAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// (negative ? -1 : 1) * digits * 10^exponent. `digits` neither begins nor ends with a zero; the
// number zero has none, the exponent 0 and no sign.
struct Decimal {
  // Of a number as JSON writes it; nothing for other text, and for exponents beyond a million.
  static std::optional<Decimal> Parse(std::string_view text);

  bool IsZero() const { return digits.empty(); }
  bool IsInteger() const { return exponent >= 0; }
  // The power of ten of the first digit: 0 for 1 to 9.99. Not of zero.
  int64_t Magnitude() const { return exponent + static_cast<int64_t>(digits.size()) - 1; }
  Decimal Negated() const;
  // Of an integer that is not negative and below 2^62; else nothing.
  std::optional<uint64_t> ToCount() const;
  // Without an exponent where that takes no more than 40 digits.
  std::string ToString() const;

  friend bool operator==(const Decimal& a, const Decimal& b) = default;

  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_DECIMAL_H_
