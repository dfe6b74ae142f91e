#include "coordinator/engine/copy_follower.h"

#include <gtest/gtest.h>

#include <numeric>

#include "common/fingerprint.h"
#include "coordinator/engine/lookup_drafter.h"

namespace strata {
namespace {

using Ids = std::vector<uint32_t>;

Ids CountedFrom(uint32_t count, uint32_t from) {
  Ids tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// A text, and what follows it: a follower that has seen that it begins as the text does.
struct Copy {
  explicit Copy(Ids text)
      : tokens(std::move(text)), distance(static_cast<uint32_t>(tokens.size())) {
    for (uint32_t i = 0; i < CopyFollower::kLeastBefore; ++i) {
      tokens.push_back(tokens[i]);
    }
    follower.Begin(distance, static_cast<uint32_t>(tokens.size()), CopyFollower::kLeastBefore);
  }
  void Add(uint32_t token) {
    tokens.push_back(token);
    follower.Follow(tokens);
  }
  void Keep(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      Add(tokens[tokens.size() - distance]);
    }
  }

  Ids tokens;
  uint32_t distance;
  CopyFollower follower;
};

TEST(CopyFollower, NothingIsFollowedBeforeItBegins) {
  CopyFollower follower;
  follower.Follow(Ids{1, 2, 3});
  EXPECT_EQ(follower.distance(), 0u);
  EXPECT_EQ(follower.matched(), 0u);
  EXPECT_FALSE(follower.changed());
}

TEST(CopyFollower, WhatBehindAChangeIsCopiedMakesItOne) {
  Copy copy(CountedFrom(100, 10));
  copy.Add(900);
  EXPECT_TRUE(copy.follower.changed() && copy.follower.may_go_on());
  EXPECT_EQ(copy.follower.matched(), 0u);
  EXPECT_EQ(copy.follower.before(), 4u);
  EXPECT_EQ(copy.follower.Became(14), 14u);  // It may have been inserted.
  copy.Keep(CopyFollower::kLeastBehind);
  EXPECT_FALSE(copy.follower.changed());
  EXPECT_EQ(copy.follower.matched(), 7u);
  EXPECT_EQ(copy.follower.Became(14), 900u);
  EXPECT_EQ(copy.follower.Became(15), 15u);
}

TEST(CopyFollower, TokensThatMatchBetweenTwoChangesAreOfOne) {
  Copy copy(CountedFrom(100, 10));
  copy.Add(900);
  copy.Keep(2);
  copy.Add(901);
  EXPECT_EQ(copy.follower.before(), 4u);
  copy.Keep(3);
  EXPECT_EQ(copy.follower.Became(14), 900u);
  EXPECT_EQ(copy.follower.Became(15), 15u);
  EXPECT_EQ(copy.follower.Became(17), 901u);
}

TEST(CopyFollower, AKnownChangeIsPartOfTheCopyUntilItIsNotMade) {
  Ids text = CountedFrom(60, 10);
  text[20] = text[30] = text[40] = text[4];
  Copy copy(text);
  copy.Add(900);
  copy.Keep(15);
  copy.Add(900);
  EXPECT_FALSE(copy.follower.changed());
  EXPECT_EQ(copy.follower.matched(), 20u);  // The first change is not counted.
  copy.Keep(9);
  copy.Keep(1);  // As it is.
  EXPECT_EQ(copy.follower.Became(text[4]), text[4]);
  EXPECT_FALSE(copy.follower.changed());
  copy.Keep(9);
  copy.Add(900);
  EXPECT_TRUE(copy.follower.changed());
}

TEST(CopyFollower, ManyChangesInARowEndTheCopy) {
  Copy copy(CountedFrom(100, 10));
  for (uint32_t i = 0; i < CopyFollower::kMostChanged; ++i) {
    copy.Add(900 + i);
    EXPECT_TRUE(copy.follower.may_go_on());
  }
  copy.Add(950);
  EXPECT_FALSE(copy.follower.may_go_on());
  copy.Keep(CopyFollower::kLeastBehind);  // It was only as long by chance, or all is new.
  EXPECT_FALSE(copy.follower.changed());
  EXPECT_EQ(copy.follower.matched(), CopyFollower::kLeastBehind);
  EXPECT_EQ(copy.follower.Became(14), 14u);
}

TEST(CopyFollower, FewCopiedTokensAreNoCopy) {
  Copy copy(CountedFrom(100, 10));
  copy.follower.Begin(copy.distance, static_cast<uint32_t>(copy.tokens.size()),
                      CopyFollower::kLeastBefore - 1);
  copy.Add(900);
  EXPECT_FALSE(copy.follower.may_go_on());
  copy.Keep(10);
  EXPECT_EQ(copy.follower.Became(14), 14u);
}

TEST(CopyFollower, RemembersTheNewestChanges) {
  Copy copy(CountedFrom(1000, 10));
  const uint32_t changes = CopyFollower::kMostChanges + 5;
  for (uint32_t i = 0; i < changes; ++i) {
    copy.Add(5000 + i);
    copy.Keep(9);
  }
  for (uint32_t i = 0; i < changes; ++i) {
    EXPECT_EQ(copy.follower.Became(14 + 10 * i) == 5000 + i, i >= 5) << i;
  }
}

TEST(LookupDrafter, GoesOnWithACopyBehindAChange) {
  LookupDrafter drafter(1000);
  Ids tokens = CountedFrom(100, 10);
  tokens.insert(tokens.end(), {5000, 30, 31, 32, 33});
  EXPECT_EQ(drafter.Next(tokens, 2).tokens, (Ids{34, 35}));
  tokens.insert(tokens.end(), {34, 900});
  const Draft draft = drafter.Next(tokens, 3);
  EXPECT_EQ(draft.tokens, (Ids{36, 37, 38}));
  EXPECT_EQ(draft.matched, 0u);
  tokens.insert(tokens.end(), {36, 37, 38});
  EXPECT_EQ(drafter.Next(tokens, 1).matched, 8u);
}

TEST(LookupDrafter, ChangesANameAgain) {
  Ids text(300);
  for (uint32_t i = 0; i < text.size(); ++i) {
    text[i] = i % 10 == 5 ? 7 : 100 + static_cast<uint32_t>(Mix64(i) % 50);
  }
  LookupDrafter drafter(1000);
  Ids tokens = text;
  tokens.push_back(5000);
  size_t right = 0;
  for (uint32_t token : text) {
    token = token == 7 ? 8 : token;
    const Draft draft = drafter.Next(tokens, 1);
    right += !draft.tokens.empty() && draft.tokens[0] == token ? 1 : 0;
    tokens.push_back(token);
  }
  // All but the first three, and where the name comes for the first time.
  EXPECT_GE(right, text.size() - 8);
}

// An insertion changes the distance, which is found by looking up.
TEST(LookupDrafter, FindsTheCopyBehindAnInsertion) {
  LookupDrafter drafter(1000);
  Ids tokens = CountedFrom(200, 10);
  tokens.insert(tokens.end(), {5000, 30, 31, 32, 33, 34, 35});
  drafter.Next(tokens, 1);
  for (uint32_t i = 0; i < 5; ++i) {
    tokens.push_back(900 + i);
    drafter.Next(tokens, 1);
  }
  tokens.insert(tokens.end(), {36, 37, 38});
  EXPECT_EQ(drafter.Next(tokens, 2).tokens, (Ids{39, 40}));
  tokens.push_back(39);
  EXPECT_EQ(drafter.Next(tokens, 1).matched, 4u);
}

}  // namespace
}  // namespace strata
