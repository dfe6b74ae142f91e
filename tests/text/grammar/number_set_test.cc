#include "text/grammar/number_set.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace strata {
namespace {

Decimal Number(std::string_view text) {
  const std::optional<Decimal> number = Decimal::Parse(text);
  EXPECT_TRUE(number.has_value()) << text;
  return number.value_or(Decimal());
}

// -1, 0 or 1, digit by digit.
int Compare(const Decimal& a, const Decimal& b) {
  if (a == b) {
    return 0;
  }
  if (a.negative != b.negative) {
    return a.negative ? -1 : 1;
  }
  const int sign = a.negative ? -1 : 1;
  if (a.IsZero() || b.IsZero()) {
    return a.IsZero() ? -1 : 1;
  }
  if (a.Magnitude() != b.Magnitude()) {
    return a.Magnitude() < b.Magnitude() ? -sign : sign;
  }
  return a.digits < b.digits ? -sign : sign;
}

// Numbers around a few places, as they may be written.
std::vector<std::string> WrittenNumbers() {
  std::vector<std::string> texts;
  for (const std::string sign : {"", "-"}) {
    for (const std::string digits : {"0",        "0.0",     "1",      "1.0",
                                     "1.50",     "2.5",     "9",      "9.99",
                                     "10",       "10.01",   "99",     "100",
                                     "150",      "999.5",   "1000",   "12345678901234567890",
                                     "0.1",      "0.10",    "0.09",   "0.099",
                                     "0.100001", "1e0",     "1e2",    "1.5e2",
                                     "1.0e+2",   "9.99e-1", "1e-1",   "5e-324",
                                     "2.5e-07",  "1e307",   "1e-307", "0.0000001",
                                     "1E03",     "1e-0"}) {
      texts.push_back(sign + digits);
    }
  }
  return texts;
}

// What a notation leaves out of these.
bool IsScientific(const std::string& text) { return text.find("324") == std::string::npos; }
bool IsShort(const std::string& text) {
  const size_t point = text.find('.');
  const size_t letter = text.find_first_of("eE");
  return IsScientific(text) &&
         (letter == std::string::npos || point == std::string::npos ||
          text.substr(point + 1, letter - point - 1).find_first_not_of('0') == std::string::npos);
}

class NumberSetTest : public ::testing::Test {
 protected:
  WorkBudget budget_ = WorkBudget(GrammarLimits());
};

TEST_F(NumberSetTest, BoundsAreComparedExactly) {
  for (const std::string bound :
       {"0", "1", "-1", "1.5", "-1.5", "0.1", "-0.1", "100", "99.99", "1e3", "1e-7", "2.5e-7",
        "12345678901234567890", "1e100", "-1e-100"}) {
    for (const bool exclusive : {false, true}) {
      WorkBudget budget = WorkBudget(GrammarLimits());
      const absl::StatusOr<NumberSet> from = NumberSet::AtLeast(Number(bound), exclusive, &budget);
      const absl::StatusOr<NumberSet> to = NumberSet::AtMost(Number(bound), exclusive, &budget);
      ASSERT_TRUE(from.ok() && to.ok()) << bound << from.status() << to.status();
      for (const std::string& text : WrittenNumbers()) {
        const int order = Compare(Number(text), Number(bound));
        const bool in_notation = IsScientific(text);
        EXPECT_EQ(from->texts()->Accepts(text),
                  in_notation && (order > 0 || (order == 0 && !exclusive)))
            << text << " from " << bound << (exclusive ? " without it" : "");
        EXPECT_EQ(to->texts()->Accepts(text),
                  in_notation && (order < 0 || (order == 0 && !exclusive)))
            << text << " to " << bound << (exclusive ? " without it" : "");
      }
    }
  }
}

TEST_F(NumberSetTest, IntegersAreNumbersWithoutFraction) {
  const NumberSet integers = NumberSet::Integers();
  const absl::StatusOr<NumberSet> others = integers.Complement(&budget_);
  for (const std::string& text : WrittenNumbers()) {
    const bool integer = Number(text).IsInteger();
    EXPECT_EQ(integers.texts()->Accepts(text), IsShort(text) && integer) << text;
    EXPECT_EQ(others->texts()->Accepts(text), IsShort(text) && !integer) << text;
  }
}

TEST_F(NumberSetTest, ListedNumbersHaveEveryText) {
  const absl::StatusOr<NumberSet> set =
      NumberSet::OneOf({Number("0.1"), Number("150"), Number("0")}, &budget_);
  for (const std::string& text : WrittenNumbers()) {
    const Decimal number = Number(text);
    EXPECT_EQ(set->texts()->Accepts(text),
              number == Number("0.1") || number == Number("150") || number == Number("0"))
        << text;
  }
}

TEST_F(NumberSetTest, ThousandsMayBeListed) {
  std::vector<Decimal> listed;
  for (int i = 0; i < 2'000; ++i) {
    listed.push_back(Number(std::to_string(i * 3)));
  }
  const absl::StatusOr<NumberSet> set = NumberSet::OneOf(listed, &budget_);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_TRUE(set->texts()->Accepts("5997"));
  EXPECT_TRUE(set->texts()->Accepts("1.2e1"));
  EXPECT_FALSE(set->texts()->Accepts("5998"));
}

TEST_F(NumberSetTest, MultiplesAreExact) {
  const auto quarters = NumberSet::MultiplesOf(Number("0.25"), &budget_);
  ASSERT_TRUE(quarters.ok() && quarters->has_value());
  const auto& texts = *(*quarters)->texts();
  for (const std::string text : {"0", "-0.0", "0.25", "1.5", "1.750", "-2", "100.25", "3.2500"}) {
    EXPECT_TRUE(texts.Accepts(text)) << text;
  }
  for (const std::string text :
       {"0.1", "0.251", "1.2", "-2.05", "1.", "01", ".5", "", "-", "1e2"}) {
    EXPECT_FALSE(texts.Accepts(text)) << text;
  }
  const auto sevens = NumberSet::MultiplesOf(Number("7"), &budget_);
  for (int i = -100; i < 100; ++i) {
    EXPECT_EQ((*sevens)->texts()->Accepts(std::to_string(i)), i % 7 == 0) << i;
  }
  EXPECT_FALSE(NumberSet::MultiplesOf(Number("0.123456789"), &budget_)->has_value());
}

TEST_F(NumberSetTest, SetsOfSeveralNotationsMeet) {
  const NumberSet integers = NumberSet::Integers();
  const auto small = NumberSet::AtMost(Number("12.5"), false, &budget_);
  const auto both = integers.Intersection(*small, &budget_);
  for (const std::string text : {"12", "-3", "1e1", "12.0", "-5e300", "0"}) {
    EXPECT_TRUE(both->texts()->Accepts(text)) << text;
  }
  for (const std::string text : {"13", "12.5", "2e1", "1.2e1", "-0.5"}) {
    EXPECT_FALSE(both->texts()->Accepts(text)) << text;
  }
  EXPECT_TRUE(NumberSet::AtLeast(Number("3"), true, &budget_)
                  ->Intersection(*NumberSet::AtMost(Number("3"), false, &budget_), &budget_)
                  ->IsEmpty());
}

}  // namespace
}  // namespace strata
