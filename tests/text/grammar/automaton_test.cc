#include "text/grammar/automaton.h"

#include <string>

#include "gtest/gtest.h"
#include "text/grammar/regex_parser.h"

namespace strata {
namespace {

class AutomatonTest : public ::testing::Test {
 protected:
  AutomatonPtr Of(std::string_view pattern) {
    const auto regex = ParsePattern(pattern, PatternUse::kWhole, budget_.limits());
    EXPECT_TRUE(regex.ok()) << regex.status();
    const auto automaton = AutomatonOf(*regex, &budget_);
    EXPECT_TRUE(automaton.ok()) << automaton.status();
    return *automaton;
  }

  WorkBudget budget_ = WorkBudget(GrammarLimits());
};

TEST_F(AutomatonTest, MeetsJoinsAndInverts) {
  const AutomatonPtr a = Of("a*b");
  const AutomatonPtr b = Of("(aa)*b?");
  const AutomatonPtr both = *IntersectionOf(a, b, &budget_);
  const AutomatonPtr either = *UnionOf(a, b, &budget_);
  const AutomatonPtr first_alone = *DifferenceOf(a, b, &budget_);
  const AutomatonPtr not_first = *ComplementOf(a, &budget_);
  for (const std::string text : {"", "a", "b", "ab", "aab", "aa", "aaab", "c", "é", "bb"}) {
    EXPECT_EQ(both->Accepts(text), a->Accepts(text) && b->Accepts(text)) << text;
    EXPECT_EQ(either->Accepts(text), a->Accepts(text) || b->Accepts(text)) << text;
    EXPECT_EQ(first_alone->Accepts(text), a->Accepts(text) && !b->Accepts(text)) << text;
    EXPECT_EQ(not_first->Accepts(text), !a->Accepts(text)) << text;
  }
}

TEST_F(AutomatonTest, HasAsFewStatesAsItNeeds) {
  EXPECT_EQ(Of("(a|b)*(a|b)*")->states.size(), 1U);
  EXPECT_EQ(Of("abc|adc")->states.size(), 4U);
  EXPECT_TRUE((*IntersectionOf(Of("a+"), Of("b+"), &budget_))->IsEmpty());
  EXPECT_TRUE((*DifferenceOf(Of("a{2}"), Of("aa"), &budget_))->IsEmpty());
}

TEST_F(AutomatonTest, EndsAtItsLimits) {
  GrammarLimits limits;
  limits.max_states = 100;
  WorkBudget budget(limits);
  const auto regex = ParsePattern("(a|b)*a(a|b){20}", PatternUse::kWhole, limits);
  ASSERT_TRUE(regex.ok());
  EXPECT_FALSE(AutomatonOf(*regex, &budget).ok());
}

TEST_F(AutomatonTest, CountsTheRangesOfClasses) {
  GrammarLimits limits;
  limits.max_steps = 1'000;
  WorkBudget one(limits);
  EXPECT_TRUE(AutomatonOf(*ParsePattern("a{100}", PatternUse::kWhole, limits), &one).ok());
  WorkBudget six(limits);
  EXPECT_FALSE(AutomatonOf(*ParsePattern("[acegik]{100}", PatternUse::kWhole, limits), &six).ok());
}

}  // namespace
}  // namespace strata
