#include "text/grammar/escapes.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/unicode/utf8.h"

namespace strata {
namespace {

// The letter behind the backslash, and what it stands for.
constexpr std::array<std::pair<char, char>, 8> kShortEscapes = {{{'"', '"'},
                                                                 {'\\', '\\'},
                                                                 {'/', '/'},
                                                                 {'b', '\b'},
                                                                 {'f', '\f'},
                                                                 {'n', '\n'},
                                                                 {'r', '\r'},
                                                                 {'t', '\t'}}};

// Numbers of 16 bits, which may be surrogates.
using Range = std::pair<unsigned, unsigned>;
using Ranges = std::vector<Range>;

// What may stand in a string as it is.
CharSet Unescaped() { return CharSet({{0x20, '!'}, {'#', '['}, {']', 0x10FFFF}}); }

GrammarExpr HexDigits(unsigned mask) {
  std::vector<CharSet::Range> ranges;
  for (unsigned digit = 0; digit < 16; ++digit) {
    if ((mask >> digit & 1) == 0) {
      continue;
    }
    if (digit < 10) {
      ranges.push_back({'0' + digit, '0' + digit});
    } else {
      ranges.push_back({'a' + digit - 10, 'a' + digit - 10});
      ranges.push_back({'A' + digit - 10, 'A' + digit - 10});
    }
  }
  return GrammarExpr::Class(CharSet(std::move(ranges)));
}

// The numbers below 16^digits in `ranges` (ascending, disjoint) as so many digits.
GrammarExpr Hex(const Ranges& ranges, int digits) {
  const unsigned size = 1U << (4 * digits);
  if (ranges.size() == 1 && ranges[0] == Range{0, size - 1}) {
    const auto count = static_cast<size_t>(digits);
    return GrammarExpr::Repeat(HexDigits(0xFFFF), count, count);
  }
  // Which first digits are followed by the same.
  std::map<Ranges, unsigned> tails;
  const unsigned step = size / 16;
  for (unsigned digit = 0; digit < 16; ++digit) {
    Ranges tail;
    for (const auto& [low, high] : ranges) {
      const unsigned from = std::max(low, digit * step);
      const unsigned to = std::min(high, digit * step + step - 1);
      if (from <= to) {
        tail.emplace_back(from - digit * step, to - digit * step);
      }
    }
    if (!tail.empty()) {
      tails[tail] |= 1U << digit;
    }
  }
  std::vector<GrammarExpr> ways;
  for (const auto& [tail, mask] : tails) {
    ways.push_back(digits == 1 ? HexDigits(mask)
                               : GrammarExpr::Sequence({HexDigits(mask), Hex(tail, digits - 1)}));
  }
  return GrammarExpr::Choice(std::move(ways));
}

// Behind the backslash.
GrammarExpr UnicodeEscape(const Ranges& ranges) {
  return GrammarExpr::Sequence({GrammarExpr::Literal("u"), Hex(ranges, 4)});
}

// Two escapes for each character beyond 16 bits.
std::vector<GrammarExpr> PairEscapes(const CharSet& set) {
  std::map<Ranges, Ranges> high_by_low;
  const CharSet beyond = set.Intersection(CharSet::Of(0x10000, 0x10FFFF));
  size_t first = 0;
  for (unsigned high = 0; high < 0x400; ++high) {
    const unsigned begin = 0x10000 + high * 0x400;
    const unsigned end = begin + 0x3FF;
    while (first < beyond.ranges().size() && beyond.ranges()[first].high < begin) {
      ++first;
    }
    Ranges lows;
    for (size_t i = first; i < beyond.ranges().size() && beyond.ranges()[i].low <= end; ++i) {
      lows.emplace_back(0xDC00 + std::max<unsigned>(beyond.ranges()[i].low, begin) - begin,
                        0xDC00 + std::min<unsigned>(beyond.ranges()[i].high, end) - begin);
    }
    if (!lows.empty()) {
      Ranges& highs = high_by_low[lows];
      if (!highs.empty() && highs.back().second + 1 == 0xD800 + high) {
        highs.back().second = 0xD800 + high;
      } else {
        highs.emplace_back(0xD800 + high, 0xD800 + high);
      }
    }
  }
  std::vector<GrammarExpr> ways;
  for (const auto& [lows, highs] : high_by_low) {
    ways.push_back(GrammarExpr::Sequence(
        {UnicodeEscape(highs), GrammarExpr::Literal("\\"), UnicodeEscape(lows)}));
  }
  return ways;
}

}  // namespace

CharSet WrittenAsThemselves(const CharSet& set) { return set.Intersection(Unescaped()); }

GrammarExpr EveryWriting(const CharSet& set) {
  CharSet plain = WrittenAsThemselves(set);
  if (plain.empty()) {
    return GrammarExpr::Sequence({GrammarExpr::Literal("\\"), BehindBackslash(set)});
  }
  return GrammarExpr::Choice(
      {GrammarExpr::Class(std::move(plain)),
       GrammarExpr::Sequence({GrammarExpr::Literal("\\"), BehindBackslash(set)})});
}

GrammarExpr BehindBackslash(const CharSet& set) {
  std::vector<GrammarExpr> ways;
  std::vector<CharSet::Range> letters;
  for (const auto& [letter, meaning] : kShortEscapes) {
    if (set.Contains(static_cast<char32_t>(meaning))) {
      letters.push_back({static_cast<char32_t>(letter), static_cast<char32_t>(letter)});
    }
  }
  if (!letters.empty()) {
    ways.push_back(GrammarExpr::Class(CharSet(std::move(letters))));
  }
  Ranges narrow;
  const CharSet of_16_bits = set.Intersection(CharSet::Of(0, 0xFFFF));
  for (const CharSet::Range& range : of_16_bits.ranges()) {
    narrow.emplace_back(range.low, range.high);
  }
  if (!narrow.empty()) {
    ways.push_back(UnicodeEscape(narrow));
  }
  for (GrammarExpr& pair : PairEscapes(set)) {
    ways.push_back(std::move(pair));
  }
  return GrammarExpr::Choice(std::move(ways));
}

GrammarExpr UsualWriting(char32_t character) {
  if (character == '/') {
    return GrammarExpr::Choice({GrammarExpr::Literal("/"), GrammarExpr::Literal("\\/")});
  }
  if (character >= 0x20 && character < 0x7F && character != '"' && character != '\\') {
    std::string text;
    AppendUtf8(character, &text);
    return GrammarExpr::Literal(std::move(text));
  }
  return EveryWriting(CharSet::Of(character));
}

}  // namespace strata
