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

void Check(const Case& example, PatternUse use) {
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
  Check({"a+", {"a", "xax", "aa"}, {"", "x"}}, PatternUse::kSearch);
  Check({"^a+$", {"a", "aa"}, {"", "ba", "ab", "a\n"}}, PatternUse::kSearch);
  Check({"^(a|b$)", {"a", "ax", "b"}, {"bx", "xa"}}, PatternUse::kSearch);
  Check({"^a|b$", {"ax", "xb"}, {"xa", "bx"}}, PatternUse::kSearch);
  Check({"(^a)?b", {"ab", "xb", "b"}, {"a"}}, PatternUse::kSearch);
  Check({"^$", {""}, {"a"}}, PatternUse::kSearch);
  Check({"a|b", {"a", "b"}, {"ab", "xa"}}, PatternUse::kWhole);
  Check({"^a$", {"a"}, {"aa"}}, PatternUse::kWhole);
}

TEST(Pattern, HasTheClassesOfEcma) {
  Check({"^\\d\\w\\s$", {"1_ ", "0a\n", "9Z\xC2\xA0"}, {"a_ ", "1- ", "1a_"}}, PatternUse::kSearch);
  Check({"^[^a-c\\d]$", {"d", "\xC3\xA9", "\n"}, {"a", "5", ""}}, PatternUse::kSearch);
  Check({"^[\\]\\-^]$", {"]", "-", "^"}, {"\\", "a"}}, PatternUse::kSearch);
  Check({"^.$", {"a", "\xF0\x9F\x98\x80"}, {"\n", "\r", "\xE2\x80\xA8", "ab"}},
        PatternUse::kSearch);
  Check({"^\\u00e9\\x41\\cJ\\u{1F600}\\ud83d\\ude00\\/\\0$",
         {std::string("\xC3\xA9"
                      "A\n\xF0\x9F\x98\x80\xF0\x9F\x98\x80/\0",
                      14)},
         {"a"}},
        PatternUse::kSearch);
}

TEST(Pattern, Counts) {
  Check({"^a{2}b{1,2}c{0,}d?e*?f+?$", {"aabf", "aabbccdeeff"}, {"abf", "aabbbf", "aab"}},
        PatternUse::kSearch);
  Check({"^(?:ab|c){2,3}$", {"abc", "ccc"}, {"ab", "cccc"}}, PatternUse::kSearch);
  Check({"^a{,2}$", {"a{,2}"}, {"aa"}}, PatternUse::kSearch);
  Check({"^(?<year>[0-9]{4})$", {"2026"}, {"026"}}, PatternUse::kSearch);
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
