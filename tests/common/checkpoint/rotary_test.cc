#include <gtest/gtest.h>

#include <cmath>

#include "common/checkpoint/checkpoint.h"
#include "common/digest.h"

namespace strata {
namespace {

// Cos and sin of the definition, in long double.
void ExpectTable(const std::vector<float>& tables, const std::vector<double>& frequencies,
                 uint32_t context) {
  const size_t half = frequencies.size();
  ASSERT_EQ(tables.size(), 2 * half * context);
  for (size_t position = 0; position < context; ++position) {
    for (size_t i = 0; i < half; ++i) {
      const long double angle = position * static_cast<long double>(frequencies[i]);
      const float cos = tables[position * half + i];
      const float sin = tables[context * half + position * half + i];
      EXPECT_NEAR(cos, cosl(angle), 1e-7) << position << " " << i;
      EXPECT_NEAR(sin, sinl(angle), 1e-7) << position << " " << i;
    }
  }
}

TEST(RotaryTables, FollowTheDefinition) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  rope.theta = 10000;
  ExpectTable(MakeRotaryTables(rope, 300), {1, 0.1, 0.01, 0.001}, 300);
}

TEST(RotaryTables, ScaleLinearly) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 8;
  ExpectTable(MakeRotaryTables(rope, 300), {0.125, 0.0125, 0.00125, 0.000125}, 300);
}

// Of the pairs from yarn_low to yarn_high, from as they are to divided.
TEST(RotaryTables, OfYarnDivideWhatTurnsSlowly) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 8;
  rope.yarn_low = 0;
  rope.yarn_high = 2;
  ExpectTable(MakeRotaryTables(rope, 300), {1, 0.05625, 0.00125, 0.000125}, 300);
}

TEST(RotaryTables, HaveTheShortAndTheLongFactorsOfLongRope) {
  RopeSpec rope;
  rope.rotary_dim = 4;
  rope.scaling = RopeScaling::kLongRope;
  rope.short_factors = {1, 2};
  rope.long_factors = {4, 10};
  EXPECT_EQ(rope.variants(), 2u);
  ExpectTable(MakeRotaryTables(rope, 50, 0), {1, 0.005}, 50);
  ExpectTable(MakeRotaryTables(rope, 50, 1), {0.25, 0.001}, 50);
  rope.magnitude = 1.5;
  EXPECT_EQ(MakeRotaryTables(rope, 1, 1)[0], 1.5f);
}

// Within the original context plain, beyond it by the theta of the longest sequence.
TEST(RotaryTables, DynamicNtkHasTwoVariants) {
  RopeSpec rope;
  rope.rotary_dim = 4;
  rope.scaling = RopeScaling::kDynamic;
  rope.factor = 3;
  rope.original_context = 20;
  EXPECT_EQ(rope.variants(), 2u);
  ExpectTable(MakeRotaryTables(rope, 50, 0), {1, 0.01}, 50);
  const double theta = 1e4 * std::pow(3.0 * 60 / 20 - 2, 4.0 / 2);
  ExpectTable(MakeRotaryTables(rope, 50, 1), {1, 1 / std::sqrt(theta)}, 50);
}

// One rope after another, each with its variants, and each once.
TEST(RotaryTables, OfAModelAreThoseOfItsLayers) {
  RopeSpec plain{.rotary_dim = 4};
  RopeSpec other{.rotary_dim = 6,
                 .scaling = RopeScaling::kLongRope,
                 .original_context = 64,
                 .short_factors = {1, 2, 3},
                 .long_factors = {4, 5, 6}};
  ModelSpec model;
  model.layers.resize(4);
  model.layers[0].attention.rotates = false;
  model.layers[1].attention.rope = plain;
  model.layers[2].attention.rope = other;
  model.layers[3].attention.rope = plain;
  const std::vector<float> tables = MakeRotaryTables(model, 10);
  ASSERT_EQ(tables.size(), RotaryFloats(model, 10));
  EXPECT_EQ(tables.size(), 10u * (4 + 6 + 6));
  EXPECT_EQ(RotaryOffset(model, 3, 1, 10), 0u);
  const auto at = [&](uint32_t layer, uint32_t variant, size_t count) {
    const auto first =
        tables.begin() + static_cast<int64_t>(RotaryOffset(model, layer, variant, 10));
    return std::vector<float>(first, first + static_cast<int64_t>(count));
  };
  EXPECT_EQ(at(1, 0, 40), MakeRotaryTables(plain, 10));
  EXPECT_EQ(at(2, 0, 60), MakeRotaryTables(other, 10, 0));
  EXPECT_EQ(at(2, 1, 60), MakeRotaryTables(other, 10, 1));
  EXPECT_EQ(RotaryVariants(model), 2u);
  EXPECT_EQ(LongRotaryAbove(model), 64u);
}

TEST(RotaryTables, AreEmptyForNoContext) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  EXPECT_TRUE(MakeRotaryTables(rope, 0).empty());
}

TEST(RotaryTables, ScaleAsLlama31Does) {
  RopeSpec rope;
  rope.rotary_dim = 32;
  rope.theta = 500000;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 64;
  std::vector<double> frequencies;
  int kept = 0, divided = 0, between = 0;
  for (int i = 0; i < 16; ++i) {
    double f = std::pow(500000.0, -2.0 * i / 32);
    const double wavelength = 2 * M_PI / f;
    if (wavelength < 64.0 / 4) {
      ++kept;
    } else if (wavelength > 64.0) {
      f /= 8;
      ++divided;
    } else {
      const double s = (64 / wavelength - 1) / (4 - 1);
      f = (1 - s) * f / 8 + s * f;
      ++between;
    }
    frequencies.push_back(f);
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(between, 0);
  ExpectTable(MakeRotaryTables(rope, 512), frequencies, 512);
}

TEST(RotaryTables, KeepAnglesExactFarOut) {
  RopeSpec rope;
  rope.rotary_dim = 2;
  const std::vector<float> tables = MakeRotaryTables(rope, 200001);
  EXPECT_EQ(tables[200000], static_cast<float>(cosl(200000)));
  EXPECT_EQ(tables[200001 + 200000], static_cast<float>(sinl(200000)));
}

// A context is a prefix of a longer one, and the bits are the same everywhere.
TEST(RotaryTables, HaveTheSameBitsEverywhere) {
  RopeSpec rope;
  rope.rotary_dim = 64;
  rope.theta = 500000;
  const std::vector<float> longer = MakeRotaryTables(rope, 512);
  const std::vector<float> shorter = MakeRotaryTables(rope, 100);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.begin() + 3200, longer.begin()));
  Sha256 sha;
  sha.Update(longer.data(), longer.size() * sizeof(float));
  EXPECT_EQ(ToHex(sha.Finish()),
            "d810073d58e10a748fc49f9c428ee0ff3b931be23b5f04afbc9e5af263a5ee4f");
}

}  // namespace
}  // namespace strata
