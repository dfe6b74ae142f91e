#include "coordinator/prefix/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/limits.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;

// A page is a letter: "abc" are the keys of three pages.
std::vector<PrefixKey> Keys(const std::string& letters) {
  std::vector<PrefixKey> keys;
  for (const char letter : letters) {
    const std::vector<uint32_t> block(kPageTokens, static_cast<uint32_t>(letter));
    keys.push_back(PrefixLink(keys.empty() ? PrefixKey{} : keys.back(), block));
  }
  return keys;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  // A sequence that began, computed and published `letters`, `shared` of them taken from others.
  void Compute(uint64_t sequence, const std::string& letters, uint32_t shared = 0) {
    cache_.Begin(sequence, Keys(letters), shared);
    cache_.Publish(sequence, Keys(letters));
  }
  PrefixCache::Match Find(const std::string& letters) const { return cache_.Find(Keys(letters)); }
  static bool Always(uint64_t /*sequence*/, uint32_t /*index*/) { return true; }

  PrefixCache cache_;
};

MATCHER_P2(Hit, pages, source, "") { return arg.pages == pages && arg.source == source; }
MATCHER_P2(Coming, pages, computing, "") {
  return arg.coming == pages && arg.computing == computing;
}

TEST_F(PrefixCacheTest, FindsTheLongestPublishedPrefixAndWhoHasIt) {
  EXPECT_THAT(Find("abc"), Hit(0u, 0u));
  Compute(1, "abc");
  Compute(2, "abxy", 2);
  EXPECT_THAT(Find("abcd"), Hit(3u, 1u));
  EXPECT_THAT(Find("abxz"), Hit(3u, 2u));
  EXPECT_EQ(Find("abq").pages, 2u);
  EXPECT_THAT(Find("q"), Hit(0u, 0u));
  EXPECT_THAT(Find("bc"), Hit(0u, 0u));
}

TEST_F(PrefixCacheTest, NothingIsFoundBeforeItIsPublished) {
  cache_.Begin(1, Keys("abc"), 0);
  EXPECT_THAT(Find("abc"), Hit(0u, 0u));
  cache_.Publish(1, Keys("a"));
  EXPECT_THAT(Find("abc"), Hit(1u, 1u));
}

TEST_F(PrefixCacheTest, WhatIsBeingComputedIsKnownUntilItIsPublishedOrGivenUp) {
  cache_.Begin(1, Keys("abcd"), 0);
  EXPECT_THAT(Find("abcx"), Coming(3u, 1u));
  cache_.Publish(1, Keys("ab"));
  EXPECT_THAT(Find("abcx"), AllOf(Hit(2u, 1u), Coming(3u, 1u)));
  EXPECT_THAT(Find("abx"), AllOf(Hit(2u, 1u), Coming(0u, 0u)));
  // Another one that computes the same all the same does not take it over.
  cache_.Begin(2, Keys("abcde"), 2);
  cache_.Publish(2, Keys("ab"));
  EXPECT_THAT(Find("abcde"), Coming(4u, 1u));
  cache_.Remove(1);
  EXPECT_THAT(Find("abcde"), AllOf(Hit(2u, 2u), Coming(0u, 0u)));
  cache_.Publish(2, Keys("abcde"));
  EXPECT_THAT(Find("abcde"), AllOf(Hit(5u, 2u), Coming(0u, 0u)));
}

TEST_F(PrefixCacheTest, ALiveSequencesPrefixGoesWithItUnlessKept) {
  Compute(1, "ab");
  cache_.Remove(1);
  EXPECT_THAT(Find("ab"), Hit(0u, 0u));
  EXPECT_EQ(cache_.nodes(), 0u);
  Compute(2, "ab");
  EXPECT_THAT(cache_.Keep(2), IsEmpty());
  EXPECT_TRUE(cache_.IsKept(2));
  EXPECT_THAT(Find("abc"), Hit(2u, 2u));
}

TEST_F(PrefixCacheTest, OfKeptSequencesThatSayTheSameOneStays) {
  Compute(1, "ab");
  EXPECT_THAT(cache_.Keep(1), IsEmpty());
  Compute(2, "abcd", 2);
  EXPECT_THAT(cache_.Keep(2), ElementsAre(FieldsAre(1u, 0u)));
  Compute(3, "abc", 3);
  EXPECT_THAT(cache_.Keep(3), ElementsAre(FieldsAre(3u, 0u)));
  cache_.Begin(4, {}, 0);
  EXPECT_THAT(cache_.Keep(4), ElementsAre(FieldsAre(4u, 0u)));
  EXPECT_EQ(cache_.kept(), 1u);
  EXPECT_EQ(cache_.live(), 0u);
  EXPECT_EQ(cache_.nodes(), 4u);
}

TEST_F(PrefixCacheTest, EvictsTheLeastRecentlyUsedLastPages) {
  Compute(1, "abc");
  cache_.Keep(1);
  Compute(2, "xyz");
  cache_.Keep(2);
  Compute(3, "ab", 2);  // A use of "ab": "c" stays the oldest.
  cache_.Keep(3);
  EXPECT_THAT(cache_.Evict(1, Always), ElementsAre(FieldsAre(1u, 2u)));
  EXPECT_THAT(cache_.Evict(2, Always), ElementsAre(FieldsAre(2u, 1u)));
  EXPECT_THAT(Find("ab"), Hit(2u, 1u));
  EXPECT_THAT(cache_.Evict(9, Always), ElementsAre(FieldsAre(1u, 0u), FieldsAre(2u, 0u)));
  EXPECT_EQ(cache_.nodes(), 0u);
  EXPECT_THAT(cache_.Evict(1, Always), IsEmpty());
}

TEST_F(PrefixCacheTest, EvictionStopsAtPagesThatOthersComputeOn) {
  Compute(1, "abcd");
  cache_.Keep(1);
  Compute(2, "abx", 2);
  const auto returns = [](uint64_t /*sequence*/, uint32_t index) { return index >= 2; };
  EXPECT_THAT(cache_.Evict(9, returns), ElementsAre(FieldsAre(1u, 2u)));
  EXPECT_THAT(cache_.Evict(9, returns), IsEmpty());
  EXPECT_TRUE(cache_.IsKept(1));
  // The live one goes, and what it pinned can.
  cache_.Remove(2);
  EXPECT_THAT(cache_.Evict(9, Always), ElementsAre(FieldsAre(1u, 0u)));
}

TEST_F(PrefixCacheTest, ASequenceCutBackToWhereAnotherKeptOneContinuesIsForgotten) {
  Compute(1, "abcd");
  cache_.Keep(1);
  Compute(2, "abxy", 2);
  cache_.Keep(2);
  const auto returns = [](uint64_t sequence, uint32_t index) {
    return sequence == 1 && index >= 2;
  };
  EXPECT_THAT(cache_.Evict(9, returns), ElementsAre(FieldsAre(1u, 0u)));
  EXPECT_THAT(Find("abxyz"), Hit(4u, 2u));
}

TEST_F(PrefixCacheTest, KeepsNoMoreSequencesThanItsLimit) {
  PrefixCache cache({.nodes = 1000, .kept = 2});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const std::vector<PrefixKey> keys = Keys(std::string(1, static_cast<char>('a' + sequence)));
    cache.Begin(sequence, keys, 0);
    cache.Publish(sequence, keys);
    const auto cuts = cache.Keep(sequence);
    if (sequence < 3) {
      EXPECT_THAT(cuts, IsEmpty());
    } else {
      EXPECT_THAT(cuts, ElementsAre(FieldsAre(1u, 0u)));
    }
  }
  EXPECT_EQ(cache.kept(), 2u);
}

TEST_F(PrefixCacheTest, PublishesNoMoreNodesThanItsLimit) {
  PrefixCache cache({.nodes = 3, .kept = 2});
  cache.Begin(1, Keys("abcde"), 0);
  cache.Publish(1, Keys("abcde"));
  EXPECT_EQ(cache.nodes(), 3u);
  EXPECT_EQ(cache.PagesOf(1), 3u);
  EXPECT_THAT(cache.Find(Keys("abcde")), Hit(3u, 1u));
  // There is room again, and it goes on where it was.
  cache.Begin(2, Keys("axy"), 1);
  cache.Publish(2, Keys("a"));
  EXPECT_THAT(cache.Keep(1), IsEmpty());
  EXPECT_THAT(cache.Evict(2, [](uint64_t, uint32_t index) { return index >= 1; }),
              ElementsAre(FieldsAre(1u, 1u)));
  cache.Publish(2, Keys("axy"));
  EXPECT_THAT(cache.Find(Keys("axyz")), Hit(3u, 2u));
}

TEST_F(PrefixCacheTest, ClearForgetsAll) {
  Compute(1, "abc");
  cache_.Keep(1);
  cache_.Begin(2, Keys("xy"), 0);
  cache_.Clear();
  EXPECT_FALSE(cache_.Has(1) || cache_.Has(2));
  EXPECT_THAT(Find("xy"), AllOf(Hit(0u, 0u), Coming(0u, 0u)));
  EXPECT_THAT(cache_.Evict(1, Always), IsEmpty());
}

}  // namespace
}  // namespace strata
