#include "coordinator/engine/window_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/limits.h"

namespace strata {
namespace {

constexpr uint32_t kWindow = 2 * kPageTokens;
constexpr uint64_t kRowsInFlight = kPageTokens;

// A full group, and after it one with a window.
std::vector<KvGroupSpec> OneWindow() { return {KvGroupSpec{}, {KvKind::kWindow, kWindow}}; }

TEST(WindowPages, AClaimTakesNoMoreThanTheWindowCanHold) {
  ClaimedWindowPages pages(OneWindow(), kRowsInFlight);
  EXPECT_FALSE(pages.Has(0));
  ASSERT_TRUE(pages.Has(1));
  const uint64_t most = pages.MostOfOne(1);
  pages.AddClaim(PageUse::kLive, 1);
  pages.AddClaim(PageUse::kLive, 1000);
  EXPECT_EQ(pages.Claimed(1, PageUse::kLive), 1 + most);
  EXPECT_EQ(pages.Claimed(1, PageUse::kFenced), 0u);
  pages.RemoveClaim(PageUse::kLive, 1000);
  EXPECT_EQ(pages.Claimed(1, PageUse::kLive), 1u);
}

TEST(WindowPages, WhatIsBehindTheWindowIsHeldUntilTheStagesKnowOfTheCommit) {
  HeldWindowPages pages(OneWindow());
  pages.SetHeld(7, 10 * kPageTokens, 10 * kPageTokens);
  EXPECT_EQ(pages.HeldLeast(1), 10u);
  EXPECT_EQ(pages.HeldMost(1), 10u);
  pages.SetRetained(7, 10 * kPageTokens);
  EXPECT_EQ(pages.HeldLeast(1), pages.HeldMost(1));
  EXPECT_LE(pages.HeldMost(1), kWindow / kPageTokens + 1);
  pages.SetRetained(7, kPageTokens);
  EXPECT_LE(pages.HeldMost(1), kWindow / kPageTokens + 1) << "what is freed stays so";
  pages.DropHeld(7);
  EXPECT_EQ(pages.HeldMost(1), 0u);
}

TEST(WindowPages, AStageMayHaveFreedWhatAnotherOneRejected) {
  HeldWindowPages pages(OneWindow());
  pages.SetHeld(7, 4 * kPageTokens, 10 * kPageTokens);
  EXPECT_LT(pages.HeldLeast(1), 4u);
  EXPECT_EQ(pages.HeldMost(1), 10u);
}

TEST(WindowPages, WithoutWindowsNothingIsCounted) {
  HeldWindowPages pages({KvGroupSpec{}});
  EXPECT_TRUE(pages.empty());
  pages.SetHeld(7, 100, 100);
  pages.SetRetained(7, 100);
  pages.DropHeld(7);
}

}  // namespace
}  // namespace strata
