#include "common/model/narrow_floats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/model/half.h"

namespace strata {
namespace {

float Half(uint32_t bits) {
  const uint8_t bytes[] = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)};
  return HalfAt(bytes);
}
float Bfloat16(uint32_t bits) {
  const uint8_t bytes[] = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)};
  return Bfloat16At(bytes);
}

// Of neighbours and what lies between them, up to `last`; `past` would follow it, and rounds to
// `end`.
template <typename At, typename Round>
void ExpectRounds(const At& at, const Round& round, uint32_t last, float past, float end) {
  for (uint32_t bits = 0; bits <= last; ++bits) {
    const float low = at(bits);
    const float high = bits == last ? past : at(bits + 1);
    const float above = bits == last ? end : high;
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      ASSERT_EQ(round(sign * low), sign * low) << low;
      ASSERT_EQ(round(sign * middle), sign * (bits % 2 == 0 ? low : above)) << middle;
      ASSERT_EQ(round(sign * std::nextafter(middle, 0.0f)), sign * low) << middle;
      ASSERT_EQ(round(sign * std::nextafter(middle, high)), sign * above) << middle;
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round(infinity), infinity);
  EXPECT_EQ(round(-infinity), -infinity);
  EXPECT_TRUE(std::signbit(round(-0.0f)));
  for (const uint32_t none : {0x7fc00000u, 0x7fffffffu, 0xffffffffu, 0x7f800001u}) {
    EXPECT_TRUE(std::isnan(round(std::bit_cast<float>(none)))) << none;
  }
}

TEST(NarrowFloats, RoundToTheNearestHalfAndToTheEvenOne) {
  ExpectRounds(Half, RoundToHalf, 0x7bff, 65536.0f, std::numeric_limits<float>::infinity());
}

TEST(NarrowFloats, RoundToTheNearestBfloat16AndToTheEvenOne) {
  // The last but one: beyond the largest float is no middle.
  ExpectRounds(Bfloat16, RoundToBfloat16, 0x7f7e, 0x1.fep+127f, 0x1.fep+127f);
  EXPECT_EQ(RoundToBfloat16(0x1.fefffep+127f), 0x1.fep+127f);
  EXPECT_EQ(RoundToBfloat16(0x1.ffp+127f), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace strata
