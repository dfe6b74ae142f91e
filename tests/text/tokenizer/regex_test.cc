// Patterns as Oniguruma understands them.
#include "text/tokenizer/regex.h"

#include <string>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/tokenizer/split_behavior.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << Describe(regex.status());
  std::vector<TextRange> ranges;
  EXPECT_TRUE((*regex)->FindAll(text, &ranges).ok());
  std::vector<std::string> matches;
  for (const TextRange& range : ranges) {
    matches.emplace_back(range.Of(text));
  }
  return matches;
}

TEST(Regex, SpacesLackTheMongolianVowelSeparator) {
  const std::string separator = "\xE1\xA0\x8E";
  EXPECT_THAT(Matches(R"(\s)", separator + "\x1F\xE2\x80\x8B"), IsEmpty());
  EXPECT_THAT(Matches(R"(\S+)", "a" + separator + " b"), ElementsAre("a" + separator, "b"));
  EXPECT_THAT(Matches(R"([^\s]+)", separator + "\xC2\x85"), ElementsAre(separator));
  EXPECT_THAT(Matches(R"([\S])", separator + "\xE3\x80\x80"), ElementsAre(separator));
  EXPECT_THAT(Matches(R"(\s+)", "\x0B\x0C\xC2\xA0x"), ElementsAre("\x0B\x0C\xC2\xA0"));
}

TEST(Regex, IntervalsWithPlusRepeat) {
  EXPECT_THAT(Matches(R"(\d{1,3}+)", "12345678"), ElementsAre("12345678"));
  EXPECT_THAT(Matches(R"(\d{2}+)", "12345"), ElementsAre("1234"));
  EXPECT_THAT(Matches(R"(\d{2,3}+5)", "12345"), ElementsAre("12345"));
  EXPECT_THAT(Matches(R"(a{,2}b)", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(Matches(R"(a{x})", "a{x}"), ElementsAre("a{x}"));
  EXPECT_THAT(Matches(R"(a++a)", "aaa"), IsEmpty());  // This one is possessive.
}

TEST(Regex, ClassesIntersectAndNest) {
  EXPECT_THAT(Matches(R"([a-z&&[^aeiou]]+)", "strata"), ElementsAre("str", "t"));
  EXPECT_THAT(Matches(R"([a[0-9]]+)", "a1b2"), ElementsAre("a1", "2"));
  EXPECT_THAT(Matches(R"([^a[0-9]]+)", "a1b2c"), ElementsAre("b", "c"));
  EXPECT_THAT(Matches(R"([\p{L}&&[^\p{Han}]]+)",
                      "ab\xE4\xB8\xAD"
                      "c"),
              ElementsAre("ab", "c"));
  EXPECT_THAT(Matches(R"([\]\-a-c^]+)", "]-b^d"), ElementsAre("]-b^"));
}

TEST(Regex, DollarEndsEveryLine) {
  EXPECT_THAT(Matches("a$", "a\na"), ElementsAre("a", "a"));
  EXPECT_THAT(Matches("^b", "ab\nb"), ElementsAre("b"));
}

TEST(Regex, OptionsAndLookAround) {
  EXPECT_THAT(Matches("(?i:'s)x", "'Sx 'sX \xE2\x80\x99sx"), ElementsAre("'Sx"));
  EXPECT_THAT(Matches("(?i:'s)", "'\xC5\xBF"), ElementsAre("'\xC5\xBF"));
  EXPECT_THAT(Matches(R"(\s+(?!\S))", "a   b  "), ElementsAre("  ", "  "));
  EXPECT_THAT(Matches("(?<=a)b", "ab cb"), ElementsAre("b"));
}

TEST(Regex, WordsHoldTheirMarks) {
  const std::string marked = "e\xCC\x81";
  EXPECT_THAT(Matches(R"(\b.+?\b)", marked + "x " + marked),
              ElementsAre(marked + "x", " ", marked));
  EXPECT_THAT(Matches(R"(\B.)", "ab  "), ElementsAre("b", " "));
}

TEST(Regex, EmptyMatchesCutBetweenCharacters) {
  std::vector<TextRange> matches;
  ASSERT_TRUE((*Regex::Compile("(?=[A-Z])"))->FindAll("oneTwo\xC3\xA9Three", &matches).ok());
  EXPECT_THAT(matches, ElementsAre(TextRange{3, 3}, TextRange{8, 8}));
  std::vector<TextRange> pieces;
  SplitPiece({0, 13}, matches, SplitBehavior::kIsolated, false, &pieces);
  EXPECT_THAT(pieces, ElementsAre(TextRange{0, 3}, TextRange{3, 8}, TextRange{8, 13}));
}

TEST(Regex, GivesUpWithAnErrorInsteadOfHanging) {
  const auto regex = Regex::Compile("(a+a+)+b");
  ASSERT_TRUE(regex.ok());
  std::vector<TextRange> matches;
  const absl::Status status = (*regex)->FindAll(std::string(60, 'a') + "cb", &matches);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "TOKENIZER_PATTERN_LIMIT");
}

TEST(Regex, GivesUpWhenManySearchesTakeLongTogether) {
  const auto regex = Regex::Compile("(?=(?:a|b)*c)x|[ab]");
  ASSERT_TRUE(regex.ok()) << regex.status();
  std::string text;
  for (int i = 0; i < 50'000; ++i) {
    text += "ab";
  }
  std::vector<TextRange> matches;
  // Each search looks at all that is left: 100,000 times 100,000 / 2 steps.
  EXPECT_EQ(ReasonOf((*regex)->FindAll(text, &matches)), "TOKENIZER_PATTERN_LIMIT");
  EXPECT_TRUE((*regex)->FindAll(text.substr(0, 500), &matches).ok());
  EXPECT_EQ(matches.size(), 500u);
}

TEST(Regex, RepeatedGroupsMatchMegabytes) {
  EXPECT_EQ(Matches("(?:[a-z][0-9])+", std::string(1 << 20, 'a') + "b1").size(), 1u);
  std::string text;
  for (int i = 0; i < 1 << 19; ++i) {
    text += "a1";
  }
  EXPECT_THAT(Matches("(?:[a-z][0-9])+", text), ElementsAre(text));
}

TEST(SplitBehavior, EachPlacesMatchesItsWay) {
  const std::vector<TextRange> matches = {{1, 2}, {2, 3}, {4, 5}};  // "a--b-c"
  const auto split = [&](SplitBehavior behavior, bool invert = false) {
    std::vector<TextRange> pieces;
    SplitPiece({0, 6}, matches, behavior, invert, &pieces);
    std::vector<std::string> texts;
    for (const TextRange& piece : pieces) {
      texts.emplace_back(piece.Of("a--b-c"));
    }
    return texts;
  };
  EXPECT_THAT(split(SplitBehavior::kIsolated), ElementsAre("a", "-", "-", "b", "-", "c"));
  EXPECT_THAT(split(SplitBehavior::kRemoved), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split(SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(split(SplitBehavior::kContiguous), ElementsAre("a", "--", "b", "-", "c"));
  EXPECT_THAT(split(SplitBehavior::kMergedWithPrevious), ElementsAre("a-", "-", "b-", "c"));
  EXPECT_THAT(split(SplitBehavior::kMergedWithNext), ElementsAre("a", "-", "-b", "-c"));
}

}  // namespace
}  // namespace strata
