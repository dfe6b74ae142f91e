#include "coordinator/engine/kv_ledger.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "coordinator/engine/held_kv.h"

namespace strata {
namespace {

using Reports = google::protobuf::RepeatedPtrField<v1::StageKv>;

void Report(Reports* reports, uint64_t free, uint64_t total) {
  v1::StageKv* kv = reports->Add();
  kv->set_stage(static_cast<uint32_t>(reports->size()) - 1);
  kv->add_free_pages(free);
  kv->add_total_pages(total);
}

template <typename Book = KvLedger>
Book TwoStages() {
  return Book({{"a", {10}}, {"b", {6}}}, {KvGroupSpec{}});
}

TEST(KvLedger, CapacityIsTheLeastOfTheStagesAndNamesIt) {
  const KvLedger ledger = TwoStages();
  EXPECT_EQ(ledger.capacity_tokens(), 96u);
  EXPECT_EQ(ledger.limiting_stage(), 1u);
}

TEST(KvLedger, ClaimsStayWhereStagesGetMorePages) {
  KvLedger ledger = TwoStages();
  const auto claim = ledger.Reserve(80);
  ASSERT_TRUE(claim.has_value());
  ledger.Regrant({{"a", {10}}, {"c", {12}}});
  EXPECT_EQ(ledger.capacity_tokens(), 160u);
  EXPECT_EQ(ledger.limiting_stage(), 0u);
  EXPECT_EQ(ledger.Free(), (KvPages{5, 7}));
  EXPECT_EQ(ledger.Covers(*claim), 80u);
  ledger.Free(*claim);
  EXPECT_EQ(ledger.Free(), (KvPages{10, 12}));
}

TEST(KvLedger, ClaimsStayWhereTheirNumberIsAnother) {
  KvLedger ledger = TwoStages();
  const auto claim = ledger.Reserve(80);
  ASSERT_TRUE(claim.has_value());
  ledger.Regrant({{"c", {8}}, {"a", {6}}, {"b", {9}}});
  EXPECT_EQ(ledger.capacity_tokens(), 96u);
  EXPECT_EQ(ledger.limiting_stage(), 1u);
  EXPECT_EQ(ledger.Free(), (KvPages{3, 1, 4}));
  ledger.Regrant({{"c", {7}}});
  EXPECT_EQ(ledger.Free(), (KvPages{2}));
  ledger.Free(*claim);
  EXPECT_EQ(ledger.Free(), (KvPages{7}));
}

TEST(KvLedger, GroupsThatAStageDoesNotUseLimitNothing) {
  const KvLedger ledger({{"a", {10, 0}}, {"b", {0, 8}}}, {KvGroupSpec{}, KvGroupSpec{}});
  EXPECT_EQ(ledger.capacity_tokens(), 128u);
  EXPECT_TRUE(ledger.Fits(128));
  EXPECT_FALSE(ledger.Fits(129));
}

TEST(KvLedger, ReservesOnEveryStageOrNowhere) {
  KvLedger ledger = TwoStages();
  const auto first = ledger.Reserve(65);  // 5 pages.
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(ledger.Reserve(17).has_value()) << "stage b has one page left";
  EXPECT_EQ(ledger.Snapshot()[0].free, 5u);
  EXPECT_EQ(ledger.Snapshot()[1].free, 1u);
  EXPECT_TRUE(ledger.Reserve(16).has_value());
  ledger.Free(*first);
  EXPECT_EQ(ledger.Snapshot()[1].free, 5u);
}

KvLedger Windowed(uint64_t full, uint64_t window) {
  return KvLedger({{"a", {full, window}}}, {{KvKind::kFull, 0}, {KvKind::kWindow, 32}}, 16);
}

TEST(KvLedger, AClaimTakesNoMoreOfAWindowGroupThanItsSequenceCanHave) {
  KvLedger ledger = Windowed(20, 9);
  const uint64_t most = MostKvPages({KvKind::kWindow, 32}, 1000, 16);
  EXPECT_EQ(most, 4u);
  EXPECT_EQ(ledger.capacity_tokens(), 320u) << "the window group limits nothing";
  EXPECT_EQ(Windowed(20, 3).capacity_tokens(), 48u);
  const auto claim = ledger.Reserve(33);
  EXPECT_EQ(ledger.PagesOf(*claim), (KvPages{3, 3}));
  EXPECT_EQ(ledger.Growth(*claim, 100), (KvPages{4, 1}));
  EXPECT_TRUE(ledger.Grow(*claim, 100));
  EXPECT_EQ(ledger.PagesOf(*claim), (KvPages{7, 4}));
  EXPECT_TRUE(ledger.Grow(*claim, 160));
  EXPECT_EQ(ledger.Free(), (KvPages{10, 5}));
  const auto other = ledger.Reserve(64);
  EXPECT_EQ(ledger.Free(), (KvPages{6, 1}));
  EXPECT_FALSE(ledger.Reserve(17).has_value()) << "the window group has one page left";
  ledger.Fence(*claim);
  EXPECT_EQ(ledger.FreeSoon(), (KvPages{16, 5}));
  EXPECT_EQ(ledger.Snapshot()[1].fenced, 4u);
  EXPECT_EQ(ledger.Snapshot()[1].live, 4u);
  ledger.Free(*claim);
  ledger.Free(*other);
  EXPECT_EQ(ledger.Free(), (KvPages{20, 9}));
}

TEST(HeldKv, PagesBehindAWindowAreBackOnceTheStagesKnowWhatIsCommitted) {
  HeldKv ledger({{"a", {20, 9}}}, {{KvKind::kFull, 0}, {KvKind::kWindow, 32}});
  const auto report = [](uint64_t full, uint64_t window) {
    Reports reports;
    v1::StageKv* kv = reports.Add();
    kv->add_free_pages(full);
    kv->add_free_pages(window);
    kv->add_total_pages(20);
    kv->add_total_pages(9);
    return reports;
  };
  ledger.SetHeld(7, 64, 64);
  EXPECT_TRUE(ledger.Compare(report(16, 5)).ok());
  EXPECT_FALSE(ledger.Compare(report(16, 6)).ok());
  ledger.SetRetained(7, 47);  // The next token sees 16 and what follows.
  EXPECT_TRUE(ledger.Compare(report(16, 6)).ok());
  EXPECT_FALSE(ledger.Compare(report(16, 5)).ok());
  ledger.SetRetained(7, 46);  // As before it was told more.
  EXPECT_TRUE(ledger.Compare(report(16, 6)).ok());
  // Rejected by a later stage: an earlier one may have more tokens, and take them for committed.
  ledger.SetHeld(7, 64, 80);
  for (const uint64_t free : {5, 6, 7, 8}) {
    EXPECT_TRUE(ledger.Compare(report(15, free)).ok()) << free;
  }
  EXPECT_FALSE(ledger.Compare(report(15, 4)).ok());
  EXPECT_FALSE(ledger.Compare(report(15, 9)).ok());
  ledger.DropHeld(7);
  EXPECT_TRUE(ledger.Compare(report(20, 9)).ok());
}

TEST(KvLedger, AClaimGrowsOnEveryStageOrNowhere) {
  KvLedger ledger = TwoStages();
  const auto claim = ledger.Reserve(32);
  EXPECT_TRUE(ledger.Grow(*claim, 33));
  EXPECT_EQ(ledger.Covers(*claim), 33u);
  EXPECT_EQ(ledger.PagesOf(*claim), (KvPages{3, 3}));
  EXPECT_EQ(ledger.Free(), (KvPages{7, 3}));
  EXPECT_EQ(ledger.Growth(*claim, 48), (KvPages{0, 0}));
  EXPECT_EQ(ledger.Growth(*claim, 49), (KvPages{1, 1}));
  const auto other = ledger.Reserve(48);
  EXPECT_TRUE(ledger.Grow(*claim, 48)) << "its page has room";
  EXPECT_FALSE(ledger.Grow(*claim, 49)) << "stage b has no page left";
  EXPECT_EQ(ledger.Covers(*claim), 48u);
  EXPECT_EQ(ledger.Free(), (KvPages{4, 0}));
  ledger.Free(*other);
  EXPECT_TRUE(ledger.Grow(*claim, 96));
  ledger.Free(*claim);
  EXPECT_EQ(ledger.Free(), (KvPages{10, 6}));
}

TEST(KvLedger, AClaimMayHaveToLeavePagesFree) {
  const KvLedger ledger = TwoStages();
  EXPECT_TRUE(ledger.Fits(64, {.pages = 2}));
  EXPECT_FALSE(ledger.Fits(64, {.pages = 3}));
  EXPECT_TRUE(ledger.Fits(64, {.pages = 3, .most_share = 0.3})) << "1.8 of 6 pages, rounded up";
  EXPECT_FALSE(ledger.Fits(65, {.pages = 3, .most_share = 0.3}));
}

TEST(KvLedger, AClaimGrowsForDraftsWhereEnoughStaysFreeAndShrinksAgain) {
  KvLedger ledger = TwoStages();
  const auto claim = ledger.Reserve(17);
  EXPECT_TRUE(ledger.GrowLeaving(*claim, 32, 100)) << "its last page has room";
  EXPECT_FALSE(ledger.GrowLeaving(*claim, 33, 4));
  EXPECT_EQ(ledger.Covers(*claim), 32u);
  EXPECT_TRUE(ledger.GrowLeaving(*claim, 33, 3));
  EXPECT_EQ(ledger.Snapshot()[1].free, 3u);
  ledger.Shrink(*claim, 100);
  EXPECT_EQ(ledger.Covers(*claim), 33u);
  ledger.Shrink(*claim, 20);
  EXPECT_EQ(ledger.Covers(*claim), 20u);
  EXPECT_EQ(ledger.Snapshot()[0].live, 2u);
  EXPECT_EQ(ledger.Snapshot()[1].free, 4u);
  ledger.Free(*claim);
  EXPECT_EQ(ledger.Snapshot()[1].free, 6u);
}

TEST(KvLedger, AWindowedClaimShrinksToWhatItsSequenceCanHave) {
  KvLedger ledger = Windowed(20, 9);
  const auto claim = ledger.Reserve(40);
  EXPECT_TRUE(ledger.GrowLeaving(*claim, 70, 0));
  EXPECT_EQ(ledger.Snapshot()[0].live, 5u);
  EXPECT_EQ(ledger.Snapshot()[1].live, 4u);
  ledger.Shrink(*claim, 40);
  EXPECT_EQ(ledger.Snapshot()[0].live, 3u);
  EXPECT_EQ(ledger.Snapshot()[1].live, 3u);
  ledger.Free(*claim);
  EXPECT_EQ(ledger.Snapshot()[1].free, 9u);
}

TEST(KvLedger, FencedPagesAreNeitherFreeNorLive) {
  KvLedger ledger = TwoStages();
  const auto claim = ledger.Reserve(32);
  ledger.Fence(*claim);
  EXPECT_EQ(ledger.Snapshot()[0].fenced, 2u);
  EXPECT_EQ(ledger.Snapshot()[0].live, 0u);
  EXPECT_FALSE(ledger.Fits(96)) << "fenced pages may not be promised";
  EXPECT_EQ(ledger.FreeSoon()[0], 10u);
  ledger.Free(*claim);
  EXPECT_TRUE(ledger.Fits(96));
}

TEST(HeldKv, ComparesWhatStagesReport) {
  auto ledger = TwoStages<HeldKv>();
  ledger.SetHeld(1, 20, 20);
  ledger.SetHeld(2, 1, 1);
  Reports good;
  Report(&good, 7, 10);
  Report(&good, 3, 6);
  EXPECT_TRUE(ledger.Compare(good).ok()) << ledger.Compare(good);

  for (const uint64_t wrong : {2u, 4u}) {
    Reports bad;
    Report(&bad, 7, 10);
    Report(&bad, wrong, 6);
    const absl::Status status = ledger.Compare(bad);
    EXPECT_EQ(ReasonOf(status), "KV_MISMATCH");
    EXPECT_EQ(DetailOf(status).node(), "b");
  }
  Reports other_total;
  Report(&other_total, 7, 10);
  Report(&other_total, 3, 7);
  EXPECT_FALSE(ledger.Compare(other_total).ok());
}

TEST(HeldKv, ARejectedItemLeavesARangeUntilItsReleaseIsCommitted) {
  auto ledger = TwoStages<HeldKv>();
  ledger.SetHeld(1, 16, 48);
  for (const uint64_t free : {3u, 4u, 5u}) {
    Reports reports;
    Report(&reports, 9, 10);
    Report(&reports, free, 6);
    EXPECT_TRUE(ledger.Compare(reports).ok()) << free;
  }
  ledger.DropHeld(1);
  Reports reports;
  Report(&reports, 10, 10);
  Report(&reports, 5, 6);
  EXPECT_FALSE(ledger.Compare(reports).ok());
}

TEST(KvLedger, AKeptSequenceIsCachedAndItsTailFencedUntilItIsCutOff) {
  KvLedger ledger = TwoStages();
  const auto claim = ledger.Reserve(50);  // 4 pages.
  ledger.Cache(*claim);
  EXPECT_EQ(ledger.claims(), 0u) << "nobody waits for what is only cached";
  const KvLedger::ClaimId tail = ledger.SplitOff(*claim, 32);
  EXPECT_EQ(ledger.Snapshot()[1].cached, 2u);
  EXPECT_EQ(ledger.Snapshot()[1].fenced, 2u);
  EXPECT_FALSE(ledger.Fits(48));
  EXPECT_TRUE(ledger.FitsWithoutCached(64, {}));
  EXPECT_FALSE(ledger.FitsWithoutCached(65, {}));
  ledger.Free(tail);
  EXPECT_TRUE(ledger.Fits(64));
  ledger.Fence(*claim);
  EXPECT_EQ(ledger.Snapshot()[0].fenced, 2u);
  ledger.Free(*claim);
  EXPECT_EQ(ledger.Free(), (KvPages{10, 6}));
}

// What a stage may hold and its report is as expected: between `least` and `most` pages.
void ExpectHeld(const HeldKv& ledger, uint64_t least, uint64_t most) {
  for (uint64_t held = 0; held <= 6; ++held) {
    Reports reports;
    Report(&reports, 10 - held, 10);
    Report(&reports, 6 - held, 6);
    EXPECT_EQ(ledger.Compare(reports).ok(), held >= least && held <= most) << held;
  }
}

TEST(HeldKv, AForksPagesAreHeldOnceAsLongAsEitherHoldsThem) {
  auto ledger = TwoStages<HeldKv>();
  ledger.SetHeld(1, 50, 50);
  ledger.HoldFork(1, 2, 32, /*everywhere=*/true);
  ExpectHeld(ledger, 4, 4);
  ledger.SetHeld(2, 40, 40);
  ExpectHeld(ledger, 5, 5);
  ledger.DropHeld(1);
  ExpectHeld(ledger, 3, 3);
  // A stage refused this one, those before it did not.
  ledger.HoldFork(2, 3, 16, /*everywhere=*/false);
  ledger.SetHeld(3, 0, 33);
  ExpectHeld(ledger, 3, 5);
  ledger.DropHeld(2);
  ExpectHeld(ledger, 0, 3);
  ledger.DropHeld(3);
  ExpectHeld(ledger, 0, 0);
}

TEST(HeldKv, APageThatAForkFillsInPartIsItsOwnOnceItIsWrittenTo) {
  auto ledger = TwoStages<HeldKv>();
  ledger.SetHeld(1, 48, 48);
  ledger.HoldFork(1, 2, 40, /*everywhere=*/true);
  ledger.HoldFork(1, 3, 33, /*everywhere=*/true);
  ExpectHeld(ledger, 3, 3);
  ledger.SetHeld(2, 41, 41);
  ExpectHeld(ledger, 4, 4);
  // Cut back after a fault: a stage may have copied the page, or not.
  ledger.SetHeld(3, 33, 33);
  ExpectHeld(ledger, 4, 5);
  ledger.SetHeld(3, 34, 34);
  ExpectHeld(ledger, 5, 5);
  ledger.DropHeld(1);
  ExpectHeld(ledger, 4, 4);
  // Who is left alone with such a page writes to it as it is.
  ledger.SetHeld(4, 16, 16);
  ledger.HoldFork(4, 5, 10, /*everywhere=*/true);
  ledger.DropHeld(4);
  ExpectHeld(ledger, 5, 5);
  ledger.SetHeld(5, 12, 12);
  ExpectHeld(ledger, 5, 5);
}

}  // namespace
}  // namespace strata
