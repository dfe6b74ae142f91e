#include "coordinator/engine/fair_shares.h"

#include <gtest/gtest.h>

#include <string>

namespace strata {
namespace {

TEST(FairShares, ATenantHasOneIndexAsLongAsItHasSessions) {
  FairShares shares;
  const uint32_t a = shares.Enter("a");
  const uint32_t none = shares.Enter("");
  EXPECT_NE(a, none) << "no name is a name too";
  EXPECT_EQ(shares.Enter("a"), a);
  EXPECT_EQ(shares.present(), 2u);
  shares.Leave(a);
  EXPECT_EQ(shares.present(), 2u);
  shares.Leave(a);
  EXPECT_EQ(shares.present(), 1u);
}

TEST(FairShares, NobodySavesUpByBeingAway) {
  FairShares shares;
  const uint32_t a = shares.Enter("a");
  const uint32_t b = shares.Enter("b");
  shares.SetWaiting({a});
  shares.Serve(a, 1000);
  shares.SetWaiting({a, b});
  EXPECT_EQ(shares.served()[b], shares.served()[a]) << "level with who waits";
  shares.Serve(a, 10);
  const uint32_t c = shares.Enter("c");
  shares.SetWaiting({a, b, c});
  EXPECT_EQ(shares.served()[c], 1000u) << "level with the least of them";
}

TEST(FairShares, WhoHadMoreAndGoesAwayForAMomentHasNotLessWhenItIsBack) {
  FairShares shares;
  uint32_t a = shares.Enter("a");
  const uint32_t b = shares.Enter("b");
  shares.SetWaiting({a, b});
  shares.Serve(a, 1000);
  shares.Leave(a);
  shares.SetWaiting({b});
  a = shares.Enter("a");
  shares.SetWaiting({a, b});
  EXPECT_EQ(shares.served()[a], 1000u);
  EXPECT_EQ(shares.served()[b], 0u);
}

TEST(FairShares, EverybodyBeginsAnewWhenNobodyWaited) {
  FairShares shares;
  const uint32_t a = shares.Enter("a");
  const uint32_t b = shares.Enter("b");
  shares.SetWaiting({a, b});
  shares.Serve(a, 1000);
  shares.SetWaiting({});
  shares.SetWaiting({a, b});
  EXPECT_EQ(shares.served()[a], shares.served()[b]);
}

TEST(FairShares, TenantsThatNeverComeBackAreForgotten) {
  FairShares shares;
  const uint32_t a = shares.Enter("a");
  shares.SetWaiting({a});
  for (int i = 0; i < 10000; ++i) {
    const uint32_t other = shares.Enter("tenant" + std::to_string(i));
    shares.SetWaiting({a, other});
    shares.Serve(other, 10);
    shares.Leave(other);
  }
  EXPECT_LE(shares.served().size(), 1100u) << "it has that many places";
}

}  // namespace
}  // namespace strata
