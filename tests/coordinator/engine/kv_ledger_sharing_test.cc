// Claims that share pages: random beginnings, forks, cuts and ends against a model that names
// every page.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "common/limits.h"
#include "coordinator/engine/kv_ledger.h"

namespace strata {
namespace {

uint32_t Pages(uint32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

struct ModelClaim {
  std::vector<uint32_t> pages;
  uint32_t length = 0;
  PageUse use = PageUse::kLive;
};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t Below(uint32_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>((state_ >> 33) % bound);
  }

 private:
  uint64_t state_;
};

class Sharing {
 public:
  explicit Sharing(uint64_t seed)
      : random_(seed),
        ledger_({{"a", {kSmall}}, {"b", {kSmall + 7}}, {"c", {0}}}, {KvGroupSpec{}}) {}

  void Step() {
    switch (random_.Below(8)) {
      case 0:
      case 1:
        return Reserve();
      case 2:
        return Grow();
      case 3:
        return ShareOrNot();
      case 4:
        return Cache();
      case 5:
        return Cut();
      case 6:
        return Fence();
      default:
        return Free();
    }
  }

  void Check() {
    std::map<uint32_t, PageUse> uses;  // The first of its holders'.
    std::map<uint32_t, int> holders;   // That are not fenced.
    for (const auto& [id, claim] : claims_) {
      for (const uint32_t page : claim.pages) {
        const auto [it, added] = uses.emplace(page, claim.use);
        it->second = std::min(it->second, claim.use);
        holders[page] += claim.use == PageUse::kFenced ? 0 : 1;
      }
    }
    std::array<uint64_t, 3> counts{};
    for (const auto& [page, use] : uses) {
      ++counts[static_cast<size_t>(use)];
    }
    const std::vector<KvSnapshot> snapshot = ledger_.Snapshot();
    for (const KvSnapshot& kv : snapshot) {
      if (kv.total == 0) {
        EXPECT_EQ(kv.free + kv.live + kv.cached + kv.fenced, 0u);
        continue;
      }
      EXPECT_EQ(kv.live, counts[0]);
      EXPECT_EQ(kv.cached, counts[1]);
      EXPECT_EQ(kv.fenced, counts[2]);
      ASSERT_LE(uses.size(), kv.total) << "more was promised than there is";
      EXPECT_EQ(kv.free, kv.total - uses.size());
    }
    EXPECT_EQ(ledger_.FreeSoon()[0], kSmall - counts[0] - counts[1]);
    for (const auto& [id, claim] : claims_) {
      EXPECT_EQ(ledger_.PagesOf(id)[0], claim.pages.size());
      EXPECT_EQ(ledger_.Covers(id), claim.length);
      for (uint32_t i = 0; i < claim.pages.size() && claim.use == PageUse::kCached; ++i) {
        EXPECT_EQ(ledger_.IsOwn(id, i), holders.at(claim.pages[i]) == 1);
      }
    }
  }

  // Whoever is left, in any order, gives everything back.
  void End() {
    while (!claims_.empty()) {
      Free();
      Check();
    }
    EXPECT_EQ(ledger_.Free(), (KvPages{kSmall, kSmall + 7, 0}));
  }

  uint64_t shared() const { return shared_; }

 private:
  static constexpr uint64_t kSmall = 40;

  using Entry = std::map<KvLedger::ClaimId, ModelClaim>::iterator;

  // Any claim that fits; end() if there is none.
  template <typename Fits>
  Entry Pick(const Fits& fits) {
    std::vector<Entry> good;
    for (auto it = claims_.begin(); it != claims_.end(); ++it) {
      if (fits(it->second)) {
        good.push_back(it);
      }
    }
    return good.empty() ? claims_.end() : good[random_.Below(static_cast<uint32_t>(good.size()))];
  }

  size_t Used() const {
    std::set<uint32_t> pages;
    for (const auto& [id, claim] : claims_) {
      pages.insert(claim.pages.begin(), claim.pages.end());
    }
    return pages.size();
  }

  size_t Sole(const ModelClaim& claim) const {
    std::map<uint32_t, int> holders;
    for (const auto& [id, other] : claims_) {
      for (const uint32_t page : other.pages) {
        ++holders[page];
      }
    }
    return static_cast<size_t>(std::count_if(claim.pages.begin(), claim.pages.end(),
                                             [&](uint32_t page) { return holders[page] == 1; }));
  }

  void Fill(ModelClaim* claim, size_t pages) {
    while (claim->pages.size() < pages) {
      claim->pages.push_back(next_page_++);
    }
  }

  void Begin(ModelClaim* claim, const ModelClaim& source, uint32_t pages) {
    claim->pages.assign(source.pages.begin(), source.pages.begin() + pages);
    shared_ += pages;
  }

  void Reserve() {
    const uint32_t length = 1 + random_.Below(200);
    ModelClaim claim{{}, length, PageUse::kLive};
    KvPrefix prefix;
    const Entry source = Pick([](const ModelClaim& c) { return c.use != PageUse::kFenced; });
    if (source != claims_.end() && random_.Below(4) > 0) {
      const auto most =
          std::min<uint32_t>(length / kPageTokens, source->second.length / kPageTokens);
      prefix = {source->first, random_.Below(most + 1)};
      Begin(&claim, source->second, prefix.pages);
    }
    const size_t room = kSmall - Used();
    const auto id = ledger_.Reserve(length, {}, prefix);
    EXPECT_EQ(id.has_value(), Pages(length) - prefix.pages <= room);
    if (id.has_value()) {
      Fill(&claim, Pages(length));
      claims_[*id] = claim;
    }
  }

  void Grow() {
    const Entry claim = Pick([](const ModelClaim& c) { return c.use == PageUse::kLive; });
    if (claim == claims_.end()) {
      return;
    }
    const uint32_t length = claim->second.length + random_.Below(40);
    const size_t more = Pages(length) - claim->second.pages.size();
    EXPECT_EQ(ledger_.Growth(claim->first, length)[0], more);
    const bool fits = more <= kSmall - Used();
    EXPECT_EQ(ledger_.Grow(claim->first, length), fits);
    if (fits) {
      claim->second.length = length;
      Fill(&claim->second, Pages(length));
    }
  }

  void ShareOrNot() {
    const Entry claim = Pick([](const ModelClaim& c) { return c.use == PageUse::kLive; });
    if (claim == claims_.end()) {
      return;
    }
    ModelClaim& c = claim->second;
    const size_t own = Sole(c);
    if (own < c.pages.size()) {
      ledger_.Unshare(claim->first);
      c.pages.clear();
      Fill(&c, own);
      c.length = std::min(c.length, static_cast<uint32_t>(own) * kPageTokens);
      return;
    }
    const Entry source = Pick(
        [&c](const ModelClaim& other) { return &other != &c && other.use != PageUse::kFenced; });
    if (source != claims_.end()) {
      const auto most =
          std::min<uint32_t>(c.length / kPageTokens, source->second.length / kPageTokens);
      const uint32_t pages = random_.Below(most + 1);
      ledger_.Share(claim->first, {source->first, pages});
      Begin(&c, source->second, pages);
      Fill(&c, Pages(c.length));
    }
  }

  void Cache() {
    const Entry claim = Pick([](const ModelClaim& c) { return c.use == PageUse::kLive; });
    if (claim != claims_.end()) {
      ledger_.Cache(claim->first);
      claim->second.use = PageUse::kCached;
    }
  }

  void Cut() {
    const Entry claim = Pick([](const ModelClaim& c) { return c.use == PageUse::kCached; });
    if (claim == claims_.end()) {
      return;
    }
    ModelClaim& c = claim->second;
    const uint32_t keep = random_.Below(c.length / kPageTokens + 1);
    const ModelClaim tail{std::vector<uint32_t>(c.pages.begin() + keep, c.pages.end()),
                          c.length - keep * kPageTokens, PageUse::kFenced};
    c.pages.resize(keep);
    c.length = keep * kPageTokens;
    claims_[ledger_.SplitOff(claim->first, c.length)] = tail;
  }

  void Fence() {
    const Entry claim = Pick([](const ModelClaim& c) { return c.use != PageUse::kFenced; });
    if (claim != claims_.end()) {
      ledger_.Fence(claim->first);
      claim->second.use = PageUse::kFenced;
    }
  }

  void Free() {
    const Entry claim = Pick([](const ModelClaim&) { return true; });
    if (claim != claims_.end()) {
      ledger_.Free(claim->first);
      claims_.erase(claim);
    }
  }

  Random random_;
  KvLedger ledger_;
  std::map<KvLedger::ClaimId, ModelClaim> claims_;
  uint32_t next_page_ = 0;
  uint64_t shared_ = 0;
};

TEST(KvLedgerSharing, RandomForksCutsAndEndsAgreeWithAModelOfEveryPage) {
  uint64_t shared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Sharing sharing(seed);
    for (int step = 0; step < 400 && !::testing::Test::HasFailure(); ++step) {
      sharing.Step();
      sharing.Check();
    }
    sharing.End();
    shared += sharing.shared();
  }
  EXPECT_GT(shared, 1000u);
}

TEST(KvLedgerSharing, AForkKeepsWhatItsSourceGivesUpAndIsChargedForIt) {
  KvLedger ledger({{"a", {10}}}, {KvGroupSpec{}});
  const auto source = *ledger.Reserve(64);
  EXPECT_FALSE(ledger.Fits(112));
  EXPECT_TRUE(ledger.Fits(112, {}, {source, 4})) << "four of its seven pages are there";
  const auto fork = *ledger.Reserve(112, {}, {source, 4});
  EXPECT_EQ(ledger.Free()[0], 3u);
  ledger.Fence(source);
  EXPECT_EQ(ledger.Snapshot()[0].fenced, 0u);
  ledger.Free(source);
  EXPECT_EQ(ledger.Free()[0], 3u);
  ledger.Cache(fork);
  EXPECT_EQ(ledger.Snapshot()[0].cached, 7u);
  ledger.Free(fork);
  EXPECT_EQ(ledger.Free()[0], 10u);
}

TEST(KvLedgerSharing, WhatAClaimDoesNotBeginWithItHasToBeGrantedAgain) {
  KvLedger ledger({{"a", {10}}}, {KvGroupSpec{}});
  const auto source = *ledger.Reserve(64);
  const auto claim = *ledger.Reserve(100, {}, {source, 4});  // Seven pages, of which three its own.
  ledger.Unshare(claim);
  EXPECT_EQ(ledger.Covers(claim), 48u);
  EXPECT_EQ(ledger.PagesOf(claim)[0], 3u);
  EXPECT_FALSE(ledger.Grow(claim, 100)) << "four more, and three are free";
  ledger.Free(source);
  EXPECT_TRUE(ledger.Grow(claim, 100));
}

TEST(KvLedgerSharing, ASourceThatBeginsAnewLeavesItsForksThePagesTheyShare) {
  KvLedger ledger({{"a", {10}}}, {KvGroupSpec{}});
  const auto source = *ledger.Reserve(96);
  const auto fork = *ledger.Reserve(80, {}, {source, 4});
  EXPECT_EQ(ledger.Free()[0], 3u);
  ledger.Unshare(source);
  EXPECT_EQ(ledger.Covers(source), 32u);
  EXPECT_EQ(ledger.Free()[0], 3u) << "what it gave up is the fork's now";
  EXPECT_FALSE(ledger.Grow(source, 96));
  ledger.Free(fork);
  EXPECT_TRUE(ledger.Grow(source, 96));
}

}  // namespace
}  // namespace strata
