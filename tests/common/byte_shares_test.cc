#include "common/byte_shares.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(ByteShares, OneMayHoldNoMoreThanItLeavesToOthers) {
  ByteShares shares(100);
  EXPECT_TRUE(shares.Take("a", 30));
  EXPECT_TRUE(shares.Take("a", 20));
  EXPECT_FALSE(shares.Take("a", 1)) << "half of all is left for others";
  EXPECT_TRUE(shares.Take("b", 30)) << "who holds nothing may take what there is";
  EXPECT_FALSE(shares.Take("b", 1));
  EXPECT_TRUE(shares.Take("c", 20));
  EXPECT_FALSE(shares.Take("d", 1)) << "nothing is left";
  EXPECT_EQ(shares.held(), 100u);
  shares.Give("a", 50);
  EXPECT_EQ(shares.HeldBy("a"), 0u);
  EXPECT_TRUE(shares.Take("d", 10));
  EXPECT_TRUE(shares.Take("b", 5));
  EXPECT_FALSE(shares.Take("b", 1)) << "35 of its own, 35 left";
}

TEST(ByteShares, ForThoseWithoutANameOnlyTheWholeIsALimit) {
  ByteShares shares(100);
  EXPECT_TRUE(shares.Take("", 60));
  EXPECT_TRUE(shares.Take("", 40));
  EXPECT_FALSE(shares.Take("", 1));
  shares.Give("", 100);
  EXPECT_EQ(shares.held(), 0u);
}

TEST(ByteShares, WhatIsLargerThanHalfIsTakenWhereItsOwnerHoldsNothing) {
  ByteShares shares(100);
  EXPECT_TRUE(shares.Take("a", 80));
  shares.Give("a", 80);
  EXPECT_FALSE(shares.Take("a", 101));
  EXPECT_EQ(shares.held(), 0u);
}

}  // namespace
}  // namespace strata
