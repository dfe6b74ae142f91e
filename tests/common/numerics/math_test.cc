#include "common/numerics/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/digest.h"
#include "common/random.h"

namespace strata {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr long double kHalfPi = 1.5707963267948966192313216916397514L;

// Distance in units of the last place of a double near `want`.
long double Ulps(double got, long double want) {
  int exponent;
  std::frexp(static_cast<double>(want), &exponent);
  return std::fabs((got - want) / std::ldexp(1.0L, std::max(exponent, -1021) - 53));
}

class Draws {
 public:
  double Uniform(double low, double high) {
    return low + (high - low) * UniformDouble(Philox(7, 0, counter_++));
  }

 private:
  uint32_t counter_ = 0;
};

TEST(ExpF32, IsWithinOneUlpOfTheExactValue) {
  double worst = 0;
  // Every 257th bit pattern: about 8.5 million numbers of both signs and all magnitudes.
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 257) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= -0x1.5d589ep+6f && x <= 0x1.62e42ep+6f)) {
      continue;
    }
    const double want = std::exp(static_cast<double>(x));
    int exponent;
    std::frexp(want, &exponent);
    worst = std::max(worst, std::fabs(ExpF32(x) - want) / std::ldexp(1.0, exponent - 24));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(ExpF32, MeetsItsLimits) {
  EXPECT_EQ(ExpF32(0.0f), 1.0f);
  EXPECT_EQ(ExpF32(-0.0f), 1.0f);
  EXPECT_EQ(ExpF32(std::numeric_limits<float>::denorm_min()), 1.0f);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ExpF32(inf), inf);
  EXPECT_EQ(ExpF32(-inf), 0.0f);
  EXPECT_TRUE(std::isnan(ExpF32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(ExpF32(0x1.62e43p+6f), inf);
  EXPECT_GT(ExpF32(0x1.62e42ep+6f), 0x1.fffp+127f);
  EXPECT_TRUE(std::isfinite(ExpF32(0x1.62e42ep+6f)));
  EXPECT_GE(ExpF32(-0x1.5d589ep+6f), 0x1p-126f);
  EXPECT_EQ(ExpF32(-0x1.5d58ap+6f), 0.0f);
  EXPECT_EQ(ExpF32(-1e30f), 0.0f);
}

TEST(ExpF32, NeverDecreasesBetweenNeighbours) {
  float before = 0;
  for (float x = -1.0f; x < 1.0f; x = std::nextafter(x + 0x1p-18f, 2.0f)) {
    const float y = ExpF32(x);
    EXPECT_GE(y, before) << x;
    before = y;
  }
}

TEST(TanhF32, IsWithinThreeUlpsOfTheExactValue) {
  double worst = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 257) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const double want = std::tanh(static_cast<double>(x));
    if (want != want || std::fabs(want) < 0x1p-126) {
      continue;
    }
    int exponent;
    std::frexp(want, &exponent);
    // Of 1, the float below it: where the exact value rounds to 1, it is just below.
    exponent = std::min(exponent, 0);
    worst = std::max(worst, std::fabs(TanhF32(x) - want) / std::ldexp(1.0, exponent - 24));
    ASSERT_LE(std::fabs(TanhF32(x)), 1.0f) << x;
  }
  EXPECT_LT(worst, 3.0);
}

TEST(TanhF32, MeetsItsLimits) {
  const float inf = std::numeric_limits<float>::infinity();
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(TanhF32(0.0f), 0.0f);
  EXPECT_EQ(TanhF32(-0.0f), 0.0f);
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(TanhF32(sign * least), sign * least);
    EXPECT_EQ(TanhF32(sign * 0x1p-126f), sign * 0x1p-126f);
    EXPECT_EQ(TanhF32(sign * 0x1p-20f), sign * 0x1p-20f);
    EXPECT_EQ(TanhF32(sign * 10.0f), sign);
    EXPECT_EQ(TanhF32(sign * 1e30f), sign);
    EXPECT_EQ(TanhF32(sign * inf), sign);
  }
  EXPECT_TRUE(std::isnan(TanhF32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(ExpF64, IsWithinOneUlpOfTheExactValue) {
  Draws draws;
  long double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double x = i % 2 == 0 ? draws.Uniform(-708, 709.7) : draws.Uniform(-1, 1);
    worst = std::max(worst, Ulps(ExpF64(x), expl(x)));
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_EQ(ExpF64(0), 1);
  EXPECT_EQ(ExpF64(kInf), kInf);
  EXPECT_EQ(ExpF64(-kInf), 0);
  EXPECT_TRUE(std::isnan(ExpF64(kNan)));
  EXPECT_EQ(ExpF64(709.79), kInf);
  EXPECT_TRUE(std::isfinite(ExpF64(0x1.62e42fefa39efp+9)));
  EXPECT_GE(ExpF64(-0x1.6232bdd7abcd2p+9), 0x1p-1022);
  EXPECT_EQ(ExpF64(-708.4), 0);
}

TEST(ExpF64, OfManyHasTheBitsOfEach) {
  std::vector<double> x = {0,
                           -0.0,
                           kInf,
                           -kInf,
                           kNan,
                           709.79,
                           0x1.62e42fefa39efp+9,
                           std::nextafter(0x1.62e42fefa39efp+9, kInf),
                           -708.4,
                           -0x1.6232bdd7abcd2p+9,
                           std::nextafter(-0x1.6232bdd7abcd2p+9, -kInf),
                           0x1p-1074};
  // Each in every place of those that are computed at once, between others.
  const std::vector<double> special = x;
  Draws draws;
  for (size_t place = 0; place < 8; ++place) {
    for (const double one : special) {
      x.resize((x.size() + 7) / 8 * 8 + place, draws.Uniform(-800, 800));
      x.push_back(one);
    }
  }
  while (x.size() < 4099) {
    x.push_back(draws.Uniform(-800, 800));
  }
  for (const size_t count : {size_t{0}, size_t{1}, size_t{12}, size_t{13}, x.size()}) {
    std::vector<double> out(count + 1, 7);
    ExpsF64(x.data(), count, out.data());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(std::bit_cast<uint64_t>(out[i]), std::bit_cast<uint64_t>(ExpF64(x[i]))) << x[i];
    }
    EXPECT_EQ(out[count], 7);
    std::vector<double> in_place(x.begin(), x.begin() + static_cast<ptrdiff_t>(count));
    ExpsF64(in_place.data(), count, in_place.data());
    out.pop_back();
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(std::bit_cast<uint64_t>(in_place[i]), std::bit_cast<uint64_t>(out[i])) << x[i];
    }
  }
}

TEST(LogF64, IsWithinOneUlpOfTheExactValue) {
  Draws draws;
  long double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    double x = draws.Uniform(0.5, 2);
    if (i % 3 == 1) {
      x = std::exp(draws.Uniform(-744, 709));  // Subnormal numbers too.
    } else if (i % 3 == 2) {
      x = 1 + draws.Uniform(-1, 1) * std::exp(draws.Uniform(-36, -1));
    }
    if (x > 0 && x != 1) {
      worst = std::max(worst, Ulps(LogF64(x), logl(x)));
    }
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_EQ(LogF64(1), 0);
  EXPECT_EQ(LogF64(0), -kInf);
  EXPECT_EQ(LogF64(-0.0), -kInf);
  EXPECT_TRUE(std::isnan(LogF64(-1)));
  EXPECT_EQ(LogF64(kInf), kInf);
  EXPECT_TRUE(std::isnan(LogF64(kNan)));
  EXPECT_LT(Ulps(LogF64(std::numeric_limits<double>::denorm_min()),
                 logl(std::numeric_limits<double>::denorm_min())),
            1.0);
}

TEST(SinCosF64, IsWithinOneUlpOfTheExactValue) {
  Draws draws;
  long double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    double x = draws.Uniform(0, 10);
    if (i % 4 == 1) {
      x = draws.Uniform(0, 0x1p31);
    } else if (i % 4 == 2) {
      x = std::exp(draws.Uniform(-20, 21));
    } else if (i % 4 == 3) {  // Next to a multiple of pi/2, where all leading bits cancel.
      const double n = std::floor(draws.Uniform(1, 0x1p30));
      x = std::nextafter(static_cast<double>(n * kHalfPi), i % 8 == 3 ? 0 : 0x1p31);
    }
    double s, c;
    SinCosF64(x, &s, &c);
    worst = std::max({worst, Ulps(s, sinl(x)), Ulps(c, cosl(x))});
  }
  EXPECT_LT(worst, 1.0);
}

TEST(SinCosF64, MeetsItsLimits) {
  double s, c;
  SinCosF64(0, &s, &c);
  EXPECT_EQ(s, 0);
  EXPECT_EQ(c, 1);
  SinCosF64(std::nextafter(0x1p31, 0), &s, &c);
  EXPECT_LT(Ulps(s, sinl(std::nextafter(0x1p31, 0))), 1.0);
  for (double x : {-1.0, 0x1p31, kInf, kNan}) {
    SinCosF64(x, &s, &c);
    EXPECT_TRUE(std::isnan(s)) << x;
    EXPECT_TRUE(std::isnan(c)) << x;
  }
}

TEST(PowF64, IsWithinTwoUlpOfTheExactValue) {
  Draws draws;
  long double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    double x = std::exp(draws.Uniform(-200, 200));
    double y = draws.Uniform(-3.5, 3.5);
    if (i % 3 == 1) {  // Rotary embeddings take theta^(-2i/d).
      x = draws.Uniform(1000, 1e7);
      y = draws.Uniform(-1, 0);
    } else if (i % 3 == 2) {
      x = draws.Uniform(0.9, 1.1);
    }
    worst = std::max(worst, Ulps(PowF64(x, y), powl(x, y)));
  }
  EXPECT_LT(worst, 2.0);
}

TEST(PowF64, MeetsItsLimits) {
  EXPECT_EQ(PowF64(5, 0), 1);
  EXPECT_EQ(PowF64(1, 1e300), 1);
  EXPECT_EQ(PowF64(2, 10), 1024);
  EXPECT_EQ(PowF64(2, -1), 0.5);
  EXPECT_EQ(PowF64(10, 1), 10);
  EXPECT_EQ(PowF64(0, 2), 0);
  EXPECT_EQ(PowF64(0, -2), kInf);
  EXPECT_EQ(PowF64(2, 2000), kInf);
  EXPECT_EQ(PowF64(2, -2000), 0);
  EXPECT_EQ(PowF64(2, 1e308), kInf);
  EXPECT_EQ(PowF64(kInf, 1), kInf);
  EXPECT_EQ(PowF64(kInf, -1), 0);
  EXPECT_EQ(PowF64(0.5, kInf), 0);
  EXPECT_TRUE(std::isnan(PowF64(-2, 2)));
  EXPECT_TRUE(std::isnan(PowF64(kNan, 2)));
  EXPECT_TRUE(std::isnan(PowF64(2, kNan)));
}

// The same bits on every machine, compiler and library: a digest of many results. It changes only
// together with the numerics version of every backend that uses these functions.
TEST(Math, GivesTheSameBitsEverywhere) {
  Sha256 sha;
  for (uint32_t i = 0; i < 20000; ++i) {
    const double u = UniformDouble(Philox(3, 1, i));
    const float f = ExpF32(static_cast<float>(u * 180 - 92));
    double results[5] = {ExpF64(u * 1400 - 700), LogF64(u * 1000), 0, 0, PowF64(500000, -u)};
    SinCosF64(u * 0x1p20, &results[2], &results[3]);
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    sha.Update(&bits, sizeof(bits));
    sha.Update(results, sizeof(results));
  }
  EXPECT_EQ(ToHex(sha.Finish()),
            "db53388823e31ee49dad091f951d7990a93b9e858724a185a335ea4b76eb593c");
}

}  // namespace
}  // namespace strata
