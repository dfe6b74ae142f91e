#include "text/grammar/decimal.h"

#include <cstddef>
#include <utility>

namespace strata {
namespace {

constexpr int64_t kMaxExponent = 1'000'000;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Digits from `*at` on; moves it behind them.
std::string_view TakeDigits(std::string_view text, size_t* at) {
  const size_t begin = *at;
  while (*at < text.size() && IsDigit(text[*at])) {
    ++*at;
  }
  return text.substr(begin, *at - begin);
}

}  // namespace

std::optional<Decimal> Decimal::Parse(std::string_view text) {
  Decimal number;
  size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    number.negative = true;
    ++at;
  }
  const std::string_view whole = TakeDigits(text, &at);
  if (whole.empty() || (whole.size() > 1 && whole[0] == '0')) {
    return std::nullopt;
  }
  number.digits = whole;
  if (at < text.size() && text[at] == '.') {
    ++at;
    const std::string_view fraction = TakeDigits(text, &at);
    if (fraction.empty()) {
      return std::nullopt;
    }
    number.digits += fraction;
    number.exponent -= static_cast<int64_t>(fraction.size());
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const bool below = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) {
      ++at;
    }
    const std::string_view power = TakeDigits(text, &at);
    if (power.empty()) {
      return std::nullopt;
    }
    int64_t value = 0;
    for (const char digit : power) {
      value = value * 10 + (digit - '0');
      if (value > kMaxExponent) {
        return std::nullopt;
      }
    }
    number.exponent += below ? -value : value;
  }
  if (at != text.size()) {
    return std::nullopt;
  }
  while (!number.digits.empty() && number.digits.back() == '0') {
    number.digits.pop_back();
    ++number.exponent;
  }
  number.digits.erase(0, number.digits.find_first_not_of('0'));
  if (number.digits.empty()) {
    number = Decimal();
  }
  return number;
}

Decimal Decimal::Negated() const {
  Decimal result = *this;
  result.negative = !IsZero() && !negative;
  return result;
}

std::optional<uint64_t> Decimal::ToCount() const {
  if (negative || !IsInteger() || (!IsZero() && Magnitude() > 18)) {
    return std::nullopt;
  }
  uint64_t value = 0;
  for (const char digit : digits + std::string(static_cast<size_t>(exponent), '0')) {
    value = value * 10 + static_cast<uint64_t>(digit - '0');
  }
  if (value >= uint64_t{1} << 62) {
    return std::nullopt;
  }
  return value;
}

std::string Decimal::ToString() const {
  if (IsZero()) {
    return "0";
  }
  const std::string sign = negative ? "-" : "";
  const int64_t size = static_cast<int64_t>(digits.size());
  if (exponent >= 0 && size + exponent <= 40) {
    return sign + digits + std::string(static_cast<size_t>(exponent), '0');
  }
  if (exponent < 0 && size + exponent > 0) {
    const size_t whole = static_cast<size_t>(size + exponent);
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
  }
  if (exponent < 0 && -exponent <= 40) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - size), '0') + digits;
  }
  return sign + digits + "e" + std::to_string(exponent);
}

}  // namespace strata
