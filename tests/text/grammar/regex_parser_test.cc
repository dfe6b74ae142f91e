#include "text/grammar/regex_parser.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "text/grammar/automaton.h"

namespace strata {
namespace {

struct Case {
  std::string pattern;
  std::vector<std::string> taken;
  std::vector<std::string> refused;
};

void CheckPattern(const Case& example, PatternUse use) {
  const GrammarLimits limits;
  WorkBudget budget(limits);
  const auto regex = ParsePattern(example.pattern, use, limits);
  ASSERT_TRUE(regex.ok()) << example.pattern << regex.status();
  const auto automaton = AutomatonOf(*regex, &budget);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const std::string& text : example.taken) {
    EXPECT_TRUE((*automaton)->Accepts(text)) << example.pattern << " on " << text;
  }
  for (const std::string& text : example.refused) {
    EXPECT_FALSE((*automaton)->Accepts(text)) << example.pattern << " on " << text;
  }
}

TEST(Pattern, MatchesAnywhereUnlessAnchored) {
  CheckPattern({"a+", {"a", "xax", "aa"}, {"", "x"}}, PatternUse::kSearch);
  CheckPattern({"^a+$", {"a", "aa"}, {"", "ba", "ab", "a\n"}}, PatternUse::kSearch);
  CheckPattern({"^(a|b$)", {"a", "ax", "b"}, {"bx", "xa"}}, PatternUse::kSearch);
  CheckPattern({"^a|b$", {"ax", "xb"}, {"xa", "bx"}}, PatternUse::kSearch);
  CheckPattern({"(^a)?b", {"ab", "xb", "b"}, {"a"}}, PatternUse::kSearch);
  CheckPattern({"^$", {""}, {"a"}}, PatternUse::kSearch);
  CheckPattern({"a|b", {"a", "b"}, {"ab", "xa"}}, PatternUse::kWhole);
  CheckPattern({"^a$", {"a"}, {"aa"}}, PatternUse::kWhole);
}

TEST(Pattern, HasTheClassesOfEcma) {
  CheckPattern({"^\\d\\w\\s$", {"1_ ", "0a\n", "9Z\xC2\xA0"}, {"a_ ", "1- ", "1a_"}},
               PatternUse::kSearch);
  CheckPattern({"^[^a-c\\d]$", {"d", "\xC3\xA9", "\n"}, {"a", "5", ""}}, PatternUse::kSearch);
  CheckPattern({"^[\\]\\-^]$", {"]", "-", "^"}, {"\\", "a"}}, PatternUse::kSearch);
  CheckPattern({"^.$", {"a", "\xF0\x9F\x98\x80"}, {"\n", "\r", "\xE2\x80\xA8", "ab"}},
               PatternUse::kSearch);
  CheckPattern({"^\\u00e9\\x41\\cJ\\u{1F600}\\ud83d\\ude00\\/\\0$",
                {std::string("\xC3\xA9"
                             "A\n\xF0\x9F\x98\x80\xF0\x9F\x98\x80/\0",
                             14)},
                {"a"}},
               PatternUse::kSearch);
}

TEST(Pattern, Counts) {
  CheckPattern({"^a{2}b{1,2}c{0,}d?e*?f+?$", {"aabf", "aabbccdeeff"}, {"abf", "aabbbf", "aab"}},
               PatternUse::kSearch);
  CheckPattern({"^(?:ab|c){2,3}$", {"abc", "ccc"}, {"ab", "cccc"}}, PatternUse::kSearch);
  CheckPattern({"^a{,2}$", {"a{,2}"}, {"aa"}}, PatternUse::kSearch);
  CheckPattern({"^(?<year>[0-9]{4})$", {"2026"}, {"026"}}, PatternUse::kSearch);
}

TEST(Pattern, ReadsEachAnchorOnce) {
  GrammarLimits limits;
  limits.max_steps = 250'000;  // One for each part.
  const std::string many(240'000, '^');
  EXPECT_TRUE(ParsePattern(many, PatternUse::kSearch, limits).ok());
  // Each of the alternatives takes all that stands behind it.
  std::string branches = "(?:a";
  for (int i = 0; i < 400; ++i) {
    branches += "|^b";
  }
  EXPECT_FALSE(
      ParsePattern(branches + ")" + std::string(9'000, 'c'), PatternUse::kSearch, limits).ok());
}

TEST(Pattern, NamesWhatItDoesNotKnow) {
  const GrammarLimits limits;
  for (const std::string pattern : {"(?=a)", "(?!a)", "(?<=a)b", "(a)\\1", "\\bword", "\\p{L}",
                                    "a^b", "(a$)+", "(?i)a", "\\k<x>", "\\ud800"}) {
    EXPECT_TRUE(absl::IsUnimplemented(ParsePattern(pattern, PatternUse::kSearch, limits).status()))
        << pattern;
  }
  for (const std::string pattern : {"(", ")", "[a", "*a", "a**", "[b-a]", "a{3,2}", "\\", "\\xg",
                                    "\\u12", "\\a", "(?<x", "\xFF"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(ParsePattern(pattern, PatternUse::kSearch, limits).status()))
        << pattern;
  }
}

}  // namespace
}  // namespace strata
