#include "common/random.h"

#include <gtest/gtest.h>

#include <set>

namespace strata {
namespace {

TEST(Random, PhiloxMatchesThePublishedKnownAnswer) {
  // Random123's kat_vectors: philox4x32 10, counter 0, key 0 -> 6627e8d5 e169c58d bc57ac4c
  // 9b00dbd8.
  EXPECT_EQ(Philox(0, 0, 0), 0xe169c58d6627e8d5u);
}

TEST(Random, EveryPartOfTheKeyCounts) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (uint32_t choice : {0u, 1u}) {
      for (uint32_t position : {0u, 1u, 2u}) {
        seen.insert(Philox(seed, choice, position));
      }
    }
  }
  EXPECT_EQ(seen.size(), 18u);
}

TEST(Random, UniformsLieInTheHalfOpenInterval) {
  EXPECT_EQ(UniformDouble(0), 0.0);
  EXPECT_LT(UniformDouble(~uint64_t{0}), 1.0);
}

}  // namespace
}  // namespace strata
