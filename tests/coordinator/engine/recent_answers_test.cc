#include "coordinator/engine/recent_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "common/fingerprint.h"
#include "coordinator/engine/lookup_drafter.h"

namespace strata {
namespace {

using Ids = std::vector<uint32_t>;

Ids Ascending(uint32_t count, uint32_t from) {
  Ids tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// Tokens that nothing else has.
Ids Own(uint32_t count, uint64_t salt) {
  Ids tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<uint32_t>(Mix64(Mix64(salt) + i) >> 34);
  }
  return tokens;
}

Draft Find(RecentAnswers* recent, const std::string& tenant, const Ids& tokens, uint32_t most = 5) {
  RecentAnswers::Place place;
  return recent->Find(tenant, {tokens}, most, &place);
}

TEST(RecentAnswers, SayHowAnAnswerWentOn) {
  RecentAnswers recent(1 << 20);
  recent.Add("a", Ascending(50, 100));
  const Draft draft = Find(&recent, "a", {7, 120, 121, 122});
  EXPECT_EQ(draft.tokens, Ascending(5, 123));
  EXPECT_EQ(draft.matched, 3u);
  EXPECT_TRUE(Find(&recent, "a", {7, 121, 122}).tokens.empty());  // Two alike are too few.
  EXPECT_TRUE(Find(&recent, "a", {121, 122}).tokens.empty());
  // Nothing behind its end.
  EXPECT_EQ(Find(&recent, "a", {145, 146, 147}).tokens, Ascending(2, 148));
  EXPECT_TRUE(Find(&recent, "a", {147, 148, 149}).tokens.empty());
}

TEST(RecentAnswers, AreTheirTenantsAlone) {
  RecentAnswers recent(1 << 20);
  recent.Add("a", Ascending(50, 100));
  recent.Add("b", Ascending(50, 500));
  EXPECT_TRUE(Find(&recent, "b", {120, 121, 122}).tokens.empty());
  EXPECT_TRUE(Find(&recent, "", {120, 121, 122}).tokens.empty());
  EXPECT_TRUE(Find(&recent, "c", {120, 121, 122}).tokens.empty());
  // Nor by a place in another's block.
  RecentAnswers::Place place{1, 23};
  EXPECT_TRUE(recent.Find("b", {Ids{120, 121, 122}}, 5, &place).tokens.empty());
  EXPECT_EQ(place.block, 0u);
}

TEST(RecentAnswers, OneEndsWhereTheNextBegins) {
  RecentAnswers recent(1 << 20);
  recent.Add("a", Ascending(10, 100));
  recent.Add("a", Ascending(10, 200));
  EXPECT_TRUE(Find(&recent, "a", {107, 108, 109}).tokens.empty());
  EXPECT_TRUE(Find(&recent, "a", {109, 200, 201}).tokens.empty());
  EXPECT_EQ(Find(&recent, "a", {200, 201, 202}).tokens, Ascending(5, 203));
}

TEST(RecentAnswers, ThePlaceBeforeWhichTheMostIsAlikeCountsAndAmongEqualsTheNewest) {
  RecentAnswers recent(1 << 20);
  recent.Add("a", Ids{9, 1, 2, 3, 4, 70});
  recent.Add("a", Ids{8, 2, 3, 4, 71});
  recent.Add("a", Ids{7, 2, 3, 4, 72});
  EXPECT_EQ(Find(&recent, "a", {1, 2, 3, 4}, 1).tokens, Ids{70});
  EXPECT_EQ(Find(&recent, "a", {5, 2, 3, 4}, 1).tokens, Ids{72});
  // Where it went on before, it goes on.
  RecentAnswers::Place place;
  EXPECT_EQ(recent.Find("a", {Ids{9, 1, 2, 3}}, 1, &place).tokens, Ids{4});
  ++place.end;
  EXPECT_EQ(recent.Find("a", {Ids{2, 3, 4}}, 1, &place).tokens, Ids{70});
}

TEST(RecentAnswers, LongOnesStandInSeveralBlocksOfWhichEachPlaceIsInOne) {
  RecentAnswers recent(16 << 20);
  const Ids answer = Own(3 * RecentAnswers::kBlockTokens, 1);
  recent.Add("a", answer);
  EXPECT_GT(recent.blocks(), 3u);
  size_t lost = 0;  // An index has room for four places of a hash.
  for (size_t end = 3; end < answer.size(); ++end) {
    const Draft draft = Find(&recent, "a", {answer.begin(), answer.begin() + end}, 1);
    ASSERT_TRUE(draft.tokens.empty() || draft.tokens == Ids{answer[end]}) << end;
    lost += draft.tokens.empty() ? 1 : 0;
  }
  EXPECT_LT(lost, answer.size() / 100);
  // The end of one that is too long.
  const Ids longer = Own(2 * RecentAnswers::kMostOfAnswer, 2);
  recent.Add("a", longer);
  EXPECT_TRUE(Find(&recent, "a", {longer.begin(), longer.begin() + 9}).tokens.empty());
  EXPECT_FALSE(Find(&recent, "a", {longer.end() - 20, longer.end() - 10}).tokens.empty());
}

TEST(RecentAnswers, GiveWayWhereTheyTakeMoreThanTheyMay) {
  const uint64_t most = 5;
  RecentAnswers recent(most * RecentAnswers::kBlockBytes);
  const uint32_t size = RecentAnswers::kBlockTokens - 1;
  for (uint32_t i = 0; i < 3; ++i) {
    recent.Add("a", Own(size, i));
  }
  const auto has = [&](const std::string& tenant, uint64_t salt) {
    const Ids tokens = Own(size, salt);
    return !Find(&recent, tenant, {tokens.begin(), tokens.begin() + 10}).tokens.empty();
  };
  EXPECT_TRUE(has("a", 0));  // It is used, so that the second one was used longest ago.
  for (uint32_t i = 3; i < 6; ++i) {
    recent.Add("b" + std::to_string(i), Own(size, i));
    EXPECT_LE(recent.blocks(), most);
  }
  EXPECT_TRUE(has("a", 0));
  EXPECT_FALSE(has("a", 1));
  EXPECT_TRUE(has("a", 2) && has("b3", 3) && has("b4", 4) && has("b5", 5));
  for (uint32_t i = 10; i < 100; ++i) {
    recent.Add("b" + std::to_string(i), Own(size, i));
    EXPECT_LE(recent.blocks(), most);
  }
  EXPECT_FALSE(has("a", 0));
  // One tenant's have a limit of their own.
  RecentAnswers large(uint64_t{1} << 30);
  for (uint32_t i = 0; i < 100; ++i) {
    large.Add("a", Own(size, i));
  }
  EXPECT_EQ(large.blocks(), RecentAnswers::kMostBlocks);
  RecentAnswers none(1000);
  none.Add("a", Own(size, 1));
  EXPECT_EQ(none.blocks(), 0u);
}

TEST(RecentDrafter, TakesWhatMoreTokensSpeakFor) {
  RecentAnswers recent(1 << 20);
  recent.Add("a", Ids{1, 2, 3, 4, 5, 70, 71, 72});
  RecentDrafter drafter(std::make_unique<LookupDrafter>(100), &recent, "a");
  RecentDrafter other(std::make_unique<LookupDrafter>(100), &recent, "b");
  // Three tokens of its own are alike, and five of the recent answer.
  Ids tokens = {0, 3, 4, 5, 60, 61, 1, 2, 3, 4, 5};
  EXPECT_EQ(drafter.Next(tokens, 2).tokens, (Ids{70, 71}));
  EXPECT_EQ(other.Next(tokens, 2).tokens, (Ids{60, 61}));
  EXPECT_EQ(drafter.Behind(tokens, Ids{70, 71}, 2).tokens, (Ids{72}));
  // Of its own as many as of the other: its own.
  tokens = {0, 3, 4, 5, 60, 61, 9, 3, 4, 5};
  RecentDrafter equal(std::make_unique<LookupDrafter>(100), &recent, "a");
  EXPECT_EQ(equal.Next(tokens, 2).tokens, (Ids{60, 61}));
}

}  // namespace
}  // namespace strata
