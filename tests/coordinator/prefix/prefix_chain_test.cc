#include "coordinator/prefix/prefix_chain.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "common/limits.h"

namespace strata {
namespace {

std::vector<uint32_t> Tokens(uint32_t count, uint32_t first = 0) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

PrefixChain ChainOf(const std::vector<uint32_t>& tokens, const PrefixScope& scope = {}) {
  PrefixChain chain(PrefixRoot(scope), 7);
  chain.Extend(tokens);
  return chain;
}

TEST(PrefixChain, EveryPartOfTheScopeAndItsBordersMatter) {
  const PrefixScope base{"w", "n", "a", 1, "s"};
  std::vector<PrefixScope> scopes(7, base);
  scopes[1].weights_digest = "x";
  scopes[2].numerics_class = "x";
  scopes[3].adapter_digest = "x";
  scopes[4].rotary_variant = 2;
  scopes[5].tenant_salt = "x";
  scopes[6].weights_digest = "wn";
  scopes[6].numerics_class = "";
  std::set<PrefixKey> roots;
  for (const PrefixScope& scope : scopes) {
    roots.insert(PrefixRoot(scope));
  }
  EXPECT_EQ(roots.size(), scopes.size());
  EXPECT_EQ(PrefixRoot(base), PrefixRoot(PrefixScope(base)));
}

TEST(PrefixChain, AKeyStandsForAllTokensBeforeItsEnd) {
  const std::vector<uint32_t> tokens = Tokens(4 * kPageTokens);
  const PrefixChain chain = ChainOf(tokens);
  for (size_t changed = 0; changed < tokens.size(); ++changed) {
    std::vector<uint32_t> others = tokens;
    others[changed] += 1 << 20;
    const PrefixChain other = ChainOf(others);
    for (uint32_t page = 0; page < chain.pages(); ++page) {
      EXPECT_EQ(chain.keys()[page] == other.keys()[page], page < changed / kPageTokens)
          << changed << " " << page;
    }
  }
}

TEST(PrefixChain, GrowingByAnyStepsGivesTheSameKeysAndTheFencesFingerprints) {
  const std::vector<uint32_t> tokens = Tokens(100);
  const PrefixChain whole = ChainOf(tokens);
  ASSERT_EQ(whole.pages(), 6u);
  PrefixChain grown(PrefixRoot({}), 7);
  for (size_t length = 0; length <= tokens.size(); ++length) {
    grown.Extend(std::span(tokens).first(length));
    EXPECT_EQ(grown.pages(), length / kPageTokens);
  }
  EXPECT_EQ(grown.keys(), whole.keys());
  Fingerprint fingerprint = 7;
  for (uint32_t i = 0; i <= 96; ++i) {
    if (i % kPageTokens == 0) {
      EXPECT_EQ(grown.FingerprintAt(i / kPageTokens), fingerprint);
    }
    fingerprint = FingerprintLink(fingerprint, i);
  }
}

// Pins the layout of a key: the value is Python's hashlib over the same bytes.
TEST(PrefixChain, KeysAreWhatTheyWere) {
  EXPECT_EQ(ToHex(PrefixRoot({"w", "n", "", 0, "s"})),
            "4d9d7c39ae1d3f7e714b4bdd53dd66a10a9c6f95d4cf7a4160b8a98409039ea3");
  EXPECT_EQ(ToHex(PrefixLink(PrefixRoot({"w", "n", "", 0, "s"}), Tokens(kPageTokens, 1000))),
            "2319d7586408e71aa15e0df4c66d812c447411eeccb17853674a8b451d397438");
}

TEST(PrefixChain, AHitLeavesATokenToCompute) {
  EXPECT_EQ(MostHitPages(0), 0u);
  EXPECT_EQ(MostHitPages(1), 0u);
  EXPECT_EQ(MostHitPages(kPageTokens), 0u);
  EXPECT_EQ(MostHitPages(kPageTokens + 1), 1u);
  EXPECT_EQ(MostHitPages(2 * kPageTokens), 1u);
}

}  // namespace
}  // namespace strata
