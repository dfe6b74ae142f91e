#include "common/units.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <utility>

namespace strata {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Units, SizesReadAsPeopleWriteThem) {
  EXPECT_EQ(*ParseSize("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(*ParseSize("1.5KiB"), 1536u);
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("2 MB"), 2000000u);
  for (const char* bad : {"", "GiB", "-1GiB", "8GiBs", "8 gib", "nan", "1e30TiB"}) {
    EXPECT_FALSE(ParseSize(bad).ok()) << bad;
  }
}

TEST(Units, DurationsReadAsPeopleWriteThem) {
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("1.5s"), milliseconds(1500));
  EXPECT_EQ(*ParseDuration("0"), milliseconds(0));
  for (const char* bad : {"", "5", "s", "-1s", "5 parsecs"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
}

TEST(Units, DurationsThatArePrintedCanBeGiven) {
  const std::pair<nanoseconds, const char*> cases[] = {{milliseconds(500), "500 ms"},
                                                       {std::chrono::seconds(30), "30 s"},
                                                       {std::chrono::minutes(5), "5.0 min"},
                                                       {std::chrono::hours(24), "24 h"},
                                                       {std::chrono::hours(24 * 14), "14 days"}};
  for (const auto& [duration, text] : cases) {
    EXPECT_EQ(FormatDuration(duration), text);
    EXPECT_EQ(*ParseDuration(text), duration) << text;
  }
}

TEST(Units, FloatsPrintAsTheShortestThatReadsBack) {
  EXPECT_EQ(FormatFloat(0.1f), "0.1");
  EXPECT_EQ(std::stof(FormatFloat(1.0f / 3)), 1.0f / 3);
  EXPECT_EQ(FormatFloat(INFINITY), "null");
}

}  // namespace
}  // namespace strata
