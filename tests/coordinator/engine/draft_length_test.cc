#include "coordinator/engine/draft_length.h"

#include <gtest/gtest.h>

#include <numeric>

#include "coordinator/engine/scheduler.h"
#include "coordinator/engine/session_drafts.h"

namespace strata {
namespace {

using Lengths = std::vector<uint32_t>;

// Rows up to eight for the time of one, then each an eighth of it.
double ByEight(uint32_t rows) { return rows <= 8 ? 1 : 1 + (rows - 8) / 8.0; }

Lengths LengthsOf(const std::vector<DraftOffer>& offers, uint32_t most_rows = 1000) {
  const auto plain = static_cast<uint32_t>(offers.size());
  return DraftLengths(offers, most_rows, [plain](uint32_t rows) { return ByEight(plain + rows); });
}

TEST(DraftLength, RowsThatCostNothingAreAllTaken) {
  EXPECT_EQ(
      DraftLengths(std::vector<DraftOffer>{{5, 0.9}, {3, 0.5}}, 100, [](uint32_t) { return 0.0; }),
      (Lengths{5, 3}));
}

TEST(DraftLength, OfOneSessionAsManyAsAreReadForTheTimeOfOne) {
  EXPECT_EQ(LengthsOf({{15, 0.6}}), (Lengths{7}));
  // What is nearly certain is worth rows that cost something.
  EXPECT_EQ(DraftLengths(std::vector<DraftOffer>{{15, 0.99}}, 100,
                         [](uint32_t rows) { return rows < 8 ? 1 : 1 + (rows - 7) / 16.0; }),
            (Lengths{15}));
  EXPECT_EQ(LengthsOf({{15, 0}}), (Lengths{0}));
  EXPECT_EQ(LengthsOf({{0, 0.9}}), (Lengths{0}));
}

// Whatever is to be expected of what is behind them.
TEST(DraftLength, WhatIsCertainIsWorthRowsThatCostLittle) {
  const auto costly = [](uint32_t rows) { return 1 + rows / 4.0; };
  EXPECT_EQ(DraftLengths(std::vector<DraftOffer>{{5, 0.01, 0, 3}}, 100, costly), (Lengths{3}));
  EXPECT_EQ(DraftLengths(std::vector<DraftOffer>{{5, 0.01, 0, 0}}, 100, costly), (Lengths{0}));
  EXPECT_EQ(DraftLengths(std::vector<DraftOffer>{{2, 0.01, 0, 3}}, 100, costly), (Lengths{2}));
}

TEST(DraftLength, NothingIsDraftedWhereEachRowCostsAsMuchAsTheFirst) {
  EXPECT_EQ(DraftLengths(std::vector<DraftOffer>{{15, 0.9}}, 100,
                         [](uint32_t rows) { return 1.0 + rows; }),
            (Lengths{0}));
}

TEST(DraftLength, ManySessionsGetFewer) {
  const auto of_each = [](size_t sessions) {
    const Lengths lengths = LengthsOf(std::vector<DraftOffer>(sessions, {15, 0.6}));
    return std::accumulate(lengths.begin(), lengths.end(), 0u) / static_cast<double>(sessions);
  };
  EXPECT_EQ(of_each(1), 7);
  EXPECT_LT(of_each(4), 4);
  EXPECT_EQ(of_each(16), 0);
}

TEST(DraftLength, GoToThoseWhoseDraftsAreLikely) {
  EXPECT_EQ(LengthsOf({{15, 0.3}, {15, 0.9}}, 4), (Lengths{0, 4}));
  const Lengths lengths = LengthsOf({{15, 0.5}, {15, 0.8}});
  EXPECT_GT(lengths[1], lengths[0]);
}

// Two rows are for the time of one, and more are not: who has no draft does not wait for others',
// once it has waited for a step.
TEST(DraftLength, NobodyIsMuchSlowerForOthersDrafts) {
  const auto cycle = [](uint32_t rows) { return 1 + 0.05 * rows; };
  EXPECT_EQ(DraftLengths(std::vector<DraftOffer>{{15, 0.95}, {0, 0.5, -kMostLost}}, 100, cycle),
            (Lengths{0, 0}));
  EXPECT_EQ(
      DraftLengths(std::vector<DraftOffer>{{15, 0.95}, {0, 0.5, 0.21 - kMostLost}}, 100, cycle),
      (Lengths{4, 0}));
  EXPECT_GT(DraftLengths(std::vector<DraftOffer>{{15, 0.95}, {0, 0.5, 1}}, 100, cycle)[0], 5u);
  const Lengths alone = DraftLengths(std::vector<DraftOffer>{{15, 0.95}}, 100, cycle);
  EXPECT_GT(alone[0], 5u);
}

TEST(DraftLength, NeverExceedsRowsNorOffers) {
  for (uint32_t most = 0; most < 12; ++most) {
    const Lengths lengths = LengthsOf({{4, 0.9}, {2, 0.95}, {0, 1}, {5, 1}}, most);
    EXPECT_LE(lengths[0] + lengths[1] + lengths[2] + lengths[3], most);
    EXPECT_LE(lengths[0], 4u);
    EXPECT_LE(lengths[1], 2u);
    EXPECT_EQ(lengths[2], 0u);
    EXPECT_LE(lengths[3], 5u);
  }
}

TEST(DraftLength, ChanceFollowsWhatTurnedOutAndIsForgottenWithTime) {
  DraftChance chance(0.3);
  EXPECT_DOUBLE_EQ(chance.value(), 0.3);
  for (int i = 0; i < 40; ++i) {
    chance.Note(5, 5);
  }
  EXPECT_GT(chance.value(), 0.95);
  for (int i = 0; i < 80; ++i) {
    chance.Note(5, 0);
  }
  const double low = chance.value();
  EXPECT_LT(low, 0.06);
  for (int i = 0; i < 200; ++i) {
    chance.Forget();
  }
  EXPECT_GT(chance.value(), 2 * low);
}

// The scheduler puts drafts behind the token of a session that decodes, where rows are cheap.
TEST(DraftLength, StepsHaveDraftsWhereTheyPay) {
  SchedulerSnapshot view;
  view.token_budget = 64;
  view.max_items = 8;
  view.max_logits_rows = 64;
  view.decoding = 1;
  view.decoding_attended = 100;
  view.ready.push_back(
      {.id = 1, .pending = 1, .position = 99, .decoding = true, .drafts = 15, .draft_chance = 0.8});
  view.costs = {StageCost::Line(10, 0.1)};
  ScheduledStep step = ScheduleStep(view);
  ASSERT_EQ(step.items.size(), 1u);
  EXPECT_EQ(step.items[0].tokens, 1u);
  EXPECT_GT(step.items[0].drafts, 8u);
  EXPECT_NEAR(step.slowdown, (10 + 0.1 * (1 + step.items[0].drafts)) / 10.1, 1e-9);
  view.costs = {StageCost::Line(0.01, 5)};
  EXPECT_EQ(ScheduleStep(view).items[0].drafts, 0u);
  EXPECT_EQ(ScheduleStep(view).slowdown, 1);
  view.costs = {StageCost::Line(10, 0.1)};
  view.token_budget = 3;
  EXPECT_EQ(ScheduleStep(view).items[0].drafts, 2u);
}

struct CountingDrafter : Drafter {
  explicit CountingDrafter(int* calls) : calls(calls) {}
  Draft Next(std::span<const uint32_t> tokens, uint32_t most) override {
    ++*calls;
    return {std::vector<uint32_t>(most, tokens.back()), 4};
  }
  int* calls;
};

TEST(SessionDrafts, AskOnceForEachNumberOfTokensAndForNoMoreThanAreOfUse) {
  int calls = 0;
  SessionDrafts drafts(std::make_unique<CountingDrafter>(&calls));
  const std::vector<uint32_t> tokens{1, 2, 3};
  drafts.Refresh(tokens, 4);
  drafts.Refresh(tokens, 4);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(drafts.next(), (std::vector<uint32_t>(4, 3)));
  drafts.Refresh(std::span(tokens).first(2), 1000);
  EXPECT_EQ(drafts.next().size(), kMostGuesses);
  drafts.Refresh(tokens, 0);
  EXPECT_TRUE(drafts.next().empty());
  drafts.Refresh(std::span(tokens).first(2), 3);
  drafts.Stop();
  EXPECT_TRUE(drafts.next().empty());
  drafts.Refresh(tokens, 4);
  EXPECT_TRUE(drafts.next().empty());
}

TEST(SessionDrafts, SayWhatTheyWonTheAnswer) {
  SessionDrafts none;
  none.Note(0, 0, 1.25);
  none.Note(0, 0, 1.25);
  EXPECT_DOUBLE_EQ(none.won(), -0.5);
  int calls = 0;
  SessionDrafts drafts(std::make_unique<CountingDrafter>(&calls));
  drafts.Note(5, 2, 1.5);
  EXPECT_DOUBLE_EQ(drafts.won(), 1.5);
  for (int i = 0; i < 100; ++i) {
    drafts.Note(5, 5, 1.5);
  }
  const double most = drafts.won();
  drafts.Note(5, 0, 1.5);
  EXPECT_DOUBLE_EQ(drafts.won(), most - 0.5);
  EXPECT_LT(most, 10);
}

TEST(SessionDrafts, CountWhatWasDraftedAndWhatTheAnswerHas) {
  int calls = 0;
  SessionDrafts drafts(std::make_unique<CountingDrafter>(&calls));
  drafts.Note(5, 3);
  drafts.Accept();
  drafts.Accept();  // The third was behind the answer's end.
  EXPECT_EQ(drafts.drafted(), 5u);
  EXPECT_EQ(drafts.accepted(), 2u);
}

}  // namespace
}  // namespace strata
