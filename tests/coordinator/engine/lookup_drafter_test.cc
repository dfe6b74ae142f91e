#include "coordinator/engine/lookup_drafter.h"

#include <gtest/gtest.h>

#include <numeric>

#include "common/fingerprint.h"

namespace strata {
namespace {

using Ids = std::vector<uint32_t>;

Ids Ascending(uint32_t count, uint32_t from) {
  Ids tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

void AddTo(const Ids& more, Ids* tokens) {
  tokens->insert(tokens->end(), more.begin(), more.end());
}

TEST(LookupDrafter, GoesOnAsTheNewestTokensDidBefore) {
  LookupDrafter drafter(1000);
  Ids tokens = Ascending(50, 100);
  EXPECT_TRUE(drafter.Next(tokens, 5).tokens.empty());
  AddTo({999, 120, 121}, &tokens);
  EXPECT_TRUE(drafter.Next(tokens, 5).tokens.empty());  // Two alike are too few.
  tokens.push_back(122);
  const Draft draft = drafter.Next(tokens, 5);
  EXPECT_EQ(draft.tokens, Ascending(5, 123));
  EXPECT_EQ(draft.matched, 3u);
}

TEST(LookupDrafter, TakesThePlaceBeforeWhichTheMostIsAlike) {
  Ids tokens = {1, 2, 3, 4, 5, 6, 70, 9, 2, 3, 4, 5, 6, 71, 8, 8, 4, 5, 6, 72};
  AddTo({0, 2, 3, 4, 5, 6}, &tokens);
  LookupDrafter drafter(1000);
  // Of the first two places five are alike, of the third three: the newer of the two.
  EXPECT_EQ(drafter.Next(tokens, 1).tokens, Ids{71});
  tokens = {1, 2, 3, 4, 5, 6, 70, 9, 2, 3, 4, 5, 6, 71, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(LookupDrafter(1000).Next(tokens, 1).tokens, Ids{70});
}

// What may follow is looked up as if it did, and is not learned.
TEST(LookupDrafter, GoesOnBehindWhatMayFollow) {
  LookupDrafter drafter(1000);
  Ids tokens = Ascending(50, 100);
  AddTo({999}, &tokens);
  EXPECT_TRUE(drafter.Next(tokens, 5).tokens.empty());
  const Draft draft = drafter.Behind(tokens, Ids{120, 121, 122}, 5);
  EXPECT_EQ(draft.tokens, Ascending(5, 123));
  EXPECT_EQ(draft.matched, 3u);
  EXPECT_TRUE(drafter.Behind(tokens, Ids{7, 8, 9}, 5).tokens.empty());
  AddTo({7, 8, 9, 7, 8, 9}, &tokens);
  EXPECT_EQ(drafter.Next(tokens, 2).tokens, (Ids{7, 8}));
}

TEST(LookupDrafter, RepeatsWhatRepeatsItself) {
  const Ids tokens = {9, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  EXPECT_EQ(LookupDrafter(100).Next(tokens, 7).tokens, (Ids{1, 2, 3, 1, 2, 3, 1}));
}

// Behind a change it finds its way back within a few tokens.
TEST(LookupDrafter, FollowsACopyWithChanges) {
  Ids file(600);
  for (uint32_t i = 0; i < file.size(); ++i) {
    file[i] = static_cast<uint32_t>(Mix64(i) % 40);  // Few tokens, so that three are often alike.
  }
  Ids edited = file;
  for (size_t i = 37; i < edited.size(); i += 41) {
    edited[i] = 1000;
  }
  Ids tokens = file;
  tokens.push_back(5000);
  LookupDrafter drafter(2000);
  size_t right = 0, known = 0;
  for (size_t i = 0; i < edited.size(); ++i) {
    const Draft draft = drafter.Next(tokens, 1);
    known += draft.tokens.empty() ? 0 : 1;
    right += !draft.tokens.empty() && draft.tokens[0] == edited[i] ? 1 : 0;
    tokens.push_back(edited[i]);
  }
  EXPECT_GT(right, edited.size() * 8 / 10);
  EXPECT_LE(right, known);
}

TEST(LookupDrafter, IndexesALongPromptInParts) {
  const uint32_t size = 3 * LookupDrafter::kMostIndexed;
  Ids tokens = Ascending(size, 10);
  AddTo(Ascending(4, 10 + size / 2), &tokens);
  LookupDrafter drafter(4 * size);
  int calls = 0;
  while (drafter.Next(tokens, 2).tokens.empty()) {
    ASSERT_LT(++calls, 4);
  }
  EXPECT_GT(calls, 0);
  EXPECT_EQ(drafter.Next(tokens, 2).tokens, Ascending(2, 10 + size / 2 + 4));
}

TEST(LookupDrafter, SaysTheSameWhereverItBegins) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Ids tokens(300);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<uint32_t>(Mix64(seed << 32 | i) % 7);
    }
    LookupDrafter one(1000), two(1000);
    for (size_t size = 1; size <= tokens.size(); ++size) {
      const auto known = std::span<const uint32_t>(tokens).first(size);
      const Draft draft = one.Next(known, 4);
      EXPECT_EQ(draft.tokens, two.Next(known, 4).tokens);
      EXPECT_TRUE(draft.tokens.empty() || draft.tokens.size() == 4);
      EXPECT_LE(draft.matched, kMostMatched);
    }
  }
}

TEST(LookupDrafter, SaysNothingOfFewTokens) {
  for (uint32_t size = 1; size <= 3; ++size) {
    EXPECT_TRUE(LookupDrafter(10).Next(Ids(size, 4), 5).tokens.empty());
  }
  EXPECT_EQ(LookupDrafter(10).Next(Ids(4, 4), 2).tokens, (Ids{4, 4}));
}

TEST(Drafter, NamesAreThoseOfTheFlag) {
  EXPECT_EQ(*ParseSpeculate("", Speculate::kLookup), Speculate::kLookup);
  EXPECT_EQ(*ParseSpeculate("off", Speculate::kAuto), Speculate::kOff);
  EXPECT_EQ(*ParseSpeculate("auto", Speculate::kOff), Speculate::kAuto);
  EXPECT_EQ(*ParseSpeculate("lookup", Speculate::kOff), Speculate::kLookup);
  EXPECT_EQ(ParseSpeculate("model=x", Speculate::kOff).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewDrafter(Speculate::kOff, 10), nullptr);
  EXPECT_NE(NewDrafter(Speculate::kAuto, 10), nullptr);
}

}  // namespace
}  // namespace strata
