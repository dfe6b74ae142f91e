#include "text/grammar/number_texts.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace strata {
namespace {

constexpr size_t kNoLimit = RegexNode::kNoLimit;
constexpr int64_t kMaxExponent = 307;

RegexPtr EmptyText() { return RegexConcat({}); }
RegexPtr Digit(char low, char high) {
  return RegexSet(CharSet::Of(static_cast<char32_t>(low), static_cast<char32_t>(high)));
}
RegexPtr AnyDigit() { return Digit('0', '9'); }
RegexPtr Digits(size_t min, size_t max) { return RegexRepeat(AnyDigit(), min, max); }
RegexPtr Zeros(size_t min) { return RegexRepeat(RegexText("0"), min, kNoLimit); }
RegexPtr Optional(RegexPtr regex) { return RegexRepeat(std::move(regex), 0, 1); }
RegexPtr Minus() { return RegexText("-"); }
RegexPtr ExponentLetter() { return RegexSet(CharSet({{'E', 'E'}, {'e', 'e'}})); }

RegexPtr AnyFraction() { return Optional(RegexConcat({RegexText("."), Digits(1, kNoLimit)})); }
RegexPtr ZeroFraction() { return Optional(RegexConcat({RegexText("."), Zeros(1)})); }
RegexPtr AnyWhole() {
  return RegexAlternate({RegexText("0"), RegexConcat({Digit('1', '9'), Digits(0, kNoLimit)})});
}

// Numbers from `low` to `high`, which have as many digits.
RegexPtr DigitsBetween(const std::string& low, const std::string& high) {
  if (low.empty()) {
    return EmptyText();
  }
  const std::string low_rest = low.substr(1);
  const std::string high_rest = high.substr(1);
  const RegexPtr first = RegexText(low.substr(0, 1));
  if (low[0] == high[0]) {
    return RegexConcat({first, DigitsBetween(low_rest, high_rest)});
  }
  std::vector<RegexPtr> ways = {
      RegexConcat({first, DigitsBetween(low_rest, std::string(low_rest.size(), '9'))}),
      RegexConcat({RegexText(high.substr(0, 1)),
                   DigitsBetween(std::string(high_rest.size(), '0'), high_rest)})};
  if (low[0] + 1 < high[0]) {
    ways.push_back(
        RegexConcat({Digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                     Digits(low_rest.size(), low_rest.size())}));
  }
  return RegexAlternate(std::move(ways));
}

// Whole numbers from `low` >= 0 to `high` of at most three digits, with any zeros in front.
RegexPtr SmallNumbers(int64_t low, int64_t high) {
  std::vector<RegexPtr> ways;
  int64_t beyond = 10;
  for (size_t size = 1; size <= 3; ++size, beyond *= 10) {
    const int64_t last = std::min(high, beyond - 1);
    if (low <= last) {
      const auto padded = [size](int64_t number) {
        const std::string digits = std::to_string(number);
        return std::string(size - digits.size(), '0') + digits;
      };
      ways.push_back(DigitsBetween(padded(low), padded(last)));
    }
  }
  return RegexAlternate(std::move(ways));
}

// The letter and an exponent between the two, of three digits at most.
RegexPtr Exponents(int64_t low, int64_t high) {
  low = std::max(low, -kMaxExponent);
  high = std::min(high, kMaxExponent);
  std::vector<RegexPtr> ways;
  if (high >= 0 && low <= high) {
    ways.push_back(
        RegexConcat({Optional(RegexText("+")), SmallNumbers(std::max<int64_t>(low, 0), high)}));
  }
  if (low <= 0 && low <= high) {
    ways.push_back(RegexConcat({Minus(), SmallNumbers(std::max<int64_t>(-high, 0), -low)}));
  }
  return RegexConcat({ExponentLetter(), RegexAlternate(std::move(ways))});
}

RegexPtr AnyExponent() { return Exponents(-kMaxExponent, kMaxExponent); }

// A fraction (with its point) such that 0.FRACTION is above 0.`digits`, or also equal to it.
RegexPtr FractionFrom(const std::string& digits, bool exclusive) {
  std::vector<RegexPtr> ways;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] < '9') {
      ways.push_back(
          RegexConcat({RegexText("." + digits.substr(0, i)),
                       Digit(static_cast<char>(digits[i] + 1), '9'), Digits(0, kNoLimit)}));
    }
  }
  const RegexPtr same = RegexText("." + digits);
  if (exclusive) {
    ways.push_back(RegexConcat({same, Zeros(0), Digit('1', '9'), Digits(0, kNoLimit)}));
  } else if (digits.empty()) {
    ways.push_back(AnyFraction());
  } else {
    ways.push_back(RegexConcat({same, Digits(0, kNoLimit)}));
  }
  return RegexAlternate(std::move(ways));
}

// Numbers without sign that begin with one of as many digits as `whole` has and lie above
// `whole`.`fraction`, or also on it.
RegexPtr SameLengthFrom(const std::string& whole, const std::string& fraction, bool exclusive) {
  std::vector<RegexPtr> ways;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] < '9') {
      const size_t left = whole.size() - i - 1;
      ways.push_back(
          RegexConcat({RegexText(whole.substr(0, i)), Digit(static_cast<char>(whole[i] + 1), '9'),
                       Digits(left, left), AnyFraction()}));
    }
  }
  ways.push_back(RegexConcat({RegexText(whole), FractionFrom(fraction, exclusive)}));
  return RegexAlternate(std::move(ways));
}

// `number` without sign as the digits before and behind the point, without needless zeros.
std::pair<std::string, std::string> Split(const Decimal& number) {
  const int64_t size = static_cast<int64_t>(number.digits.size());
  const int64_t point = size + number.exponent;
  if (number.IsZero()) {
    return {"0", ""};
  }
  if (point <= 0) {
    return {"0", std::string(static_cast<size_t>(-point), '0') + number.digits};
  }
  if (point >= size) {
    return {number.digits + std::string(static_cast<size_t>(point - size), '0'), ""};
  }
  return {number.digits.substr(0, static_cast<size_t>(point)),
          number.digits.substr(static_cast<size_t>(point))};
}

// Texts without sign of scientific notation whose numbers lie above `bound` > 0, or also on it.
RegexPtr UnsignedFrom(const Decimal& bound, bool exclusive) {
  const auto [whole, fraction] = Split(bound);
  const RegexPtr longer =
      RegexConcat({Digit('1', '9'), Digits(whole.size(), kNoLimit), AnyFraction()});
  const int64_t power = bound.Magnitude();
  const RegexPtr mantissa = RegexConcat({Digit('1', '9'), AnyFraction()});
  return RegexAlternate({
      longer,
      SameLengthFrom(whole, fraction, exclusive),
      RegexConcat({mantissa, Exponents(power + 1, kMaxExponent)}),
      RegexConcat({SameLengthFrom(bound.digits.substr(0, 1), bound.digits.substr(1), exclusive),
                   Exponents(power, power)}),
  });
}

RegexPtr UnsignedZero() { return RegexConcat({RegexText("0"), ZeroFraction()}); }

RegexPtr UnsignedAll() {
  return RegexAlternate({RegexConcat({AnyWhole(), AnyFraction()}),
                         RegexConcat({Digit('1', '9'), AnyFraction(), AnyExponent()})});
}

RegexPtr UnsignedAboveZero() {
  return RegexAlternate(
      {RegexConcat({Digit('1', '9'), Digits(0, kNoLimit), AnyFraction()}),
       RegexConcat({RegexText("0."), Zeros(0), Digit('1', '9'), Digits(0, kNoLimit)}),
       RegexConcat({Digit('1', '9'), AnyFraction(), AnyExponent()})});
}

}  // namespace

RegexPtr NumberTexts(Notation notation) {
  const RegexPtr sign = Optional(Minus());
  const RegexPtr plain = RegexConcat({sign, AnyWhole(), AnyFraction()});
  switch (notation) {
    case Notation::kAll:
      return RegexConcat(
          {plain, Optional(RegexConcat({ExponentLetter(),
                                        Optional(RegexSet(CharSet({{'+', '+'}, {'-', '-'}}))),
                                        Digits(1, kNoLimit)}))});
    case Notation::kScientific:
      return RegexConcat({sign, UnsignedAll()});
    case Notation::kShort:
      return RegexAlternate(
          {plain, RegexConcat({sign, Digit('1', '9'), ZeroFraction(), AnyExponent()})});
    case Notation::kPlain:
      break;
  }
  return plain;
}

RegexPtr IntegerTexts() {
  return RegexConcat(
      {Optional(Minus()), RegexAlternate({RegexConcat({AnyWhole(), ZeroFraction()}),
                                          RegexConcat({Digit('1', '9'), ZeroFraction(),
                                                       Exponents(0, kMaxExponent)})})});
}

RegexPtr TextsOf(const Decimal& number) {
  if (number.IsZero()) {
    return RegexConcat({Optional(Minus()), UnsignedZero()});
  }
  const auto [whole, fraction] = Split(number);
  std::vector<RegexPtr> parts = {RegexText(whole)};
  if (fraction.empty()) {
    parts.push_back(ZeroFraction());
  } else {
    parts.push_back(RegexText("." + fraction));
    parts.push_back(Zeros(0));
  }
  std::vector<RegexPtr> scientific = {RegexText(number.digits.substr(0, 1))};
  if (number.digits.size() == 1) {
    scientific.push_back(ZeroFraction());
  } else {
    scientific.push_back(RegexText("." + number.digits.substr(1)));
    scientific.push_back(Zeros(0));
  }
  scientific.push_back(Exponents(number.Magnitude(), number.Magnitude()));
  return RegexConcat(
      {number.negative ? Minus() : EmptyText(),
       RegexAlternate({RegexConcat(std::move(parts)), RegexConcat(std::move(scientific))})});
}

RegexPtr TextsBeyond(const Decimal& bound, bool below, bool exclusive) {
  const RegexPtr sign = below ? Minus() : EmptyText();
  if (!bound.IsZero()) {
    return RegexConcat({sign, UnsignedFrom(bound, exclusive)});
  }
  if (exclusive) {
    return RegexConcat({sign, UnsignedAboveZero()});
  }
  return RegexAlternate(
      {RegexConcat({sign, UnsignedAll()}), RegexConcat({Optional(Minus()), UnsignedZero()})});
}

}  // namespace strata
