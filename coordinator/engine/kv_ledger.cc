#include "coordinator/engine/kv_ledger.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/limits.h"
#include "coordinator/engine/ledger_policy.h"

namespace strata {
namespace {

// What a claim takes of the pages of `length` tokens.
uint32_t Claimed(uint32_t length) {
  return static_cast<uint32_t>(ledger_policy::PagesToReserve(FullGroupPages(length)));
}

}  // namespace

KvLedger::KvLedger(const std::vector<KvStage>& stages, const std::vector<KvGroupSpec>& groups,
                   uint64_t rows_in_flight)
    : windows_(groups, rows_in_flight) {
  for (const KvStage& stage : stages) {
    STRATA_CHECK(stage.pages.size() == groups.size());
  }
  SetComponents(stages);
}

void KvLedger::SetComponents(const std::vector<KvStage>& stages) {
  components_.clear();
  for (uint32_t s = 0; s < stages.size(); ++s) {
    for (uint32_t g = 0; g < stages[s].pages.size(); ++g) {
      Component component;
      component.stage = s;
      component.group = g;
      component.total = stages[s].pages[g];
      const uint64_t claimed = component.total > 0 ? ClaimedPages(g) : 0;
      STRATA_CHECK(claimed <= component.total);
      component.free = component.total - claimed;
      components_.push_back(component);
    }
  }
  SetCapacity();
}

void KvLedger::SetCapacity() {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Component& component : components_) {
    const bool bounded =
        !windows_.Has(component.group) || component.total < windows_.MostOfOne(component.group);
    const uint64_t tokens = bounded ? component.total * kPageTokens : kMaxContextTokens;
    if (component.total > 0 && tokens < least) {
      least = tokens;
      limiting_stage_ = component.stage;
    }
  }
  capacity_tokens_ = least == std::numeric_limits<uint64_t>::max() ? 0 : least;
}

void KvLedger::Regrant(const std::vector<KvStage>& stages) {
  STRATA_CHECK(windows_.empty() || stages.size() == components_.back().stage + size_t{1});
  SetComponents(stages);
}

KvPages KvLedger::Everywhere(uint64_t pages) const {
  KvPages everywhere;
  everywhere.reserve(components_.size());
  for (const Component& component : components_) {
    const uint64_t most =
        windows_.Has(component.group) ? windows_.MostOfOne(component.group) : pages;
    everywhere.push_back(component.total == 0 ? 0 : std::min(pages, most));
  }
  return everywhere;
}

uint64_t KvLedger::ClaimedPages(uint32_t group, PageUse use) const {
  return windows_.Has(group) ? windows_.Claimed(group, use) : claimed_.pages(use);
}

uint64_t KvLedger::ClaimedPages(uint32_t group) const {
  return ClaimedPages(group, PageUse::kLive) + ClaimedPages(group, PageUse::kCached) +
         ClaimedPages(group, PageUse::kFenced);
}

template <typename Change>
void KvLedger::Book(std::initializer_list<ClaimId> claims, const Change& change) {
  for (const ClaimId claim : claims) {
    if (claimed_.Has(claim)) {
      windows_.RemoveClaim(claimed_.use(claim), claimed_.size(claim));
    }
  }
  change();
  for (const ClaimId claim : claims) {
    if (claimed_.Has(claim)) {
      windows_.AddClaim(claimed_.use(claim), claimed_.size(claim));
    }
  }
  for (Component& component : components_) {
    if (component.total > 0) {
      const uint64_t claimed = ClaimedPages(component.group);
      STRATA_CHECK(claimed <= component.total);
      component.free = component.total - claimed;
    }
  }
}

KvPages KvLedger::Asked(uint32_t length, const KvSpare& spare, const KvPrefix& prefix) const {
  KvPages pages =
      Everywhere(FullGroupPages(length) - std::min(FullGroupPages(length), prefix.pages));
  for (size_t i = 0; i < pages.size(); ++i) {
    const double most = std::ceil(spare.most_share * static_cast<double>(components_[i].total));
    pages[i] += std::min(spare.pages, static_cast<uint64_t>(most));
  }
  return pages;
}

bool KvLedger::Fits(uint32_t length, const KvSpare& spare, const KvPrefix& prefix) const {
  const KvPages asked = Asked(length, spare, prefix);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] > components_[i].free) {
      return false;
    }
  }
  return length <= capacity_tokens_;
}

bool KvLedger::FitsWithoutCached(uint32_t length, const KvSpare& spare) const {
  const KvPages asked = Asked(length, spare);
  for (size_t i = 0; i < asked.size(); ++i) {
    const uint64_t cached = ClaimedPages(components_[i].group, PageUse::kCached);
    if (asked[i] > components_[i].free + cached) {
      return false;
    }
  }
  return length <= capacity_tokens_;
}

std::optional<KvLedger::ClaimId> KvLedger::Reserve(uint32_t length, const KvSpare& spare,
                                                   const KvPrefix& prefix) {
  if (!Fits(length, spare, prefix)) {
    return std::nullopt;
  }
  const ClaimId id = next_claim_++;
  claims_[id] = {length, length};
  Book({id}, [&] {
    claimed_.Add(id, PageUse::kLive);
    const uint32_t shared = Begin(id, prefix);
    claimed_.Resize(id, claimed_.size(id) + Claimed(length) - shared);
  });
  return id;
}

// A claim without pages takes those of `prefix`, but no more than it will have in all.
uint32_t KvLedger::Begin(ClaimId claim, const KvPrefix& prefix) {
  if (prefix.pages == 0) {
    return 0;
  }
  STRATA_CHECK(windows_.empty() && claimed_.use(prefix.source) != PageUse::kFenced);
  const uint32_t pages =
      std::min({prefix.pages, claimed_.size(prefix.source), Claimed(claims_.at(claim).charged)});
  if (ledger_policy::ForksHoldTheirPrefix()) {
    claimed_.Share(prefix.source, claim, pages);
  }
  return pages;
}

void KvLedger::Share(ClaimId claim, const KvPrefix& prefix) {
  STRATA_CHECK(claimed_.use(claim) == PageUse::kLive);
  Book({claim}, [&] {
    const uint32_t pages = claimed_.size(claim);
    claimed_.Resize(claim, 0);
    const uint32_t shared = Begin(claim, prefix);
    claimed_.Resize(claim, claimed_.size(claim) + pages - shared);
  });
}

void KvLedger::Unshare(ClaimId claim) {
  const uint32_t own = claimed_.SolePages(claim);
  if (own == claimed_.size(claim)) {
    return;
  }
  Book({claim}, [&] {
    claimed_.Resize(claim, 0);
    claimed_.Resize(claim, own);
  });
  Claim& left = claims_.at(claim);
  left.length = std::min<uint32_t>(left.length, own * kPageTokens);
  left.charged = std::min<uint32_t>(left.charged, own * kPageTokens);
}

uint32_t KvLedger::Covers(ClaimId claim) const { return claims_.at(claim).length; }

bool KvLedger::Grow(ClaimId claim, uint32_t length) {
  Claim& grown = claims_.at(claim);
  STRATA_CHECK(claimed_.use(claim) == PageUse::kLive && length >= grown.length);
  const uint32_t charged = ledger_policy::TokensToCharge(grown.charged, length);
  const KvPages more = Growth(claim, charged);
  for (size_t i = 0; i < more.size(); ++i) {
    if (more[i] > components_[i].free) {
      return false;
    }
  }
  const uint32_t pages = Claimed(charged) - Claimed(grown.charged);
  Book({claim}, [&] { claimed_.Resize(claim, claimed_.size(claim) + pages); });
  grown.length = length;
  grown.charged = charged;
  return true;
}

bool KvLedger::GrowLeaving(ClaimId claim, uint32_t length, uint64_t spare) {
  const KvPages more = Growth(claim, length);
  for (size_t i = 0; i < more.size(); ++i) {
    if (more[i] > 0 && more[i] + spare > components_[i].free) {
      return false;
    }
  }
  return Grow(claim, length);
}

void KvLedger::Shrink(ClaimId claim, uint32_t length) {
  Claim& left = claims_.at(claim);
  STRATA_CHECK(claimed_.use(claim) == PageUse::kLive);
  left.length = std::min(left.length, length);
  const uint32_t charged = std::min(left.charged, length);
  const uint32_t pages = Claimed(left.charged) - Claimed(charged);
  left.charged = charged;
  if (pages > 0) {
    Book({claim}, [&] { claimed_.Resize(claim, claimed_.size(claim) - pages); });
  }
}

KvPages KvLedger::Growth(ClaimId claim, uint32_t length) const {
  const uint32_t charged = claims_.at(claim).charged;
  const KvPages before = Everywhere(Claimed(charged));
  KvPages growth = Everywhere(Claimed(std::max(charged, length)));
  for (size_t i = 0; i < growth.size(); ++i) {
    growth[i] -= before[i];
  }
  return growth;
}

KvPages KvLedger::PagesOf(ClaimId claim) const { return Everywhere(claimed_.size(claim)); }

KvPages KvLedger::Free() const {
  KvPages pages;
  for (const Component& component : components_) {
    pages.push_back(component.free);
  }
  return pages;
}

KvPages KvLedger::FreeSoon() const {
  KvPages pages = Free();
  for (size_t i = 0; i < pages.size(); ++i) {
    const Component& component = components_[i];
    pages[i] += component.total == 0 ? 0 : ClaimedPages(component.group, PageUse::kFenced);
  }
  return pages;
}

bool KvLedger::IsOwn(ClaimId claim, uint32_t index) const {
  return index < claimed_.size(claim) && claimed_.IsOwn(claim, index);
}

void KvLedger::SetUse(ClaimId claim, PageUse use) {
  const PageUse before = claimed_.use(claim);
  STRATA_CHECK(before != use);
  cached_claims_ -= before == PageUse::kCached ? 1 : 0;
  cached_claims_ += use == PageUse::kCached ? 1 : 0;
  Book({claim}, [&] { claimed_.SetUse(claim, use); });
}

KvLedger::ClaimId KvLedger::SplitOff(ClaimId claim, uint32_t length) {
  Claim& kept = claims_.at(claim);
  STRATA_CHECK(length % kPageTokens == 0 && length <= kept.length);
  const uint32_t charged = std::min(kept.charged, length);
  const ClaimId id = next_claim_++;
  const Claim rest{kept.length - length, kept.charged - charged};
  kept.length = length;
  kept.charged = charged;
  const uint32_t pages = std::min(claimed_.size(claim), Claimed(charged));
  claims_.emplace(id, rest);
  Book({claim, id}, [&] {
    claimed_.Split(claim, pages, id);
    claimed_.SetUse(id, PageUse::kFenced);
  });
  return id;
}

void KvLedger::Free(ClaimId claim) {
  STRATA_CHECK(claims_.contains(claim));
  cached_claims_ -= claimed_.use(claim) == PageUse::kCached ? 1 : 0;
  Book({claim}, [&] { claimed_.Drop(claim); });
  claims_.erase(claim);
}

std::vector<KvSnapshot> KvLedger::Snapshot() const {
  std::vector<KvSnapshot> snapshot;
  snapshot.reserve(components_.size());
  for (const Component& component : components_) {
    KvSnapshot& pages = snapshot.emplace_back();
    pages.stage = component.stage;
    pages.group = component.group;
    pages.total = component.total;
    pages.free = component.free;
    if (component.total > 0) {
      pages.live = ClaimedPages(component.group, PageUse::kLive);
      pages.cached = ClaimedPages(component.group, PageUse::kCached);
      pages.fenced = ClaimedPages(component.group, PageUse::kFenced);
    }
  }
  return snapshot;
}

}  // namespace strata
