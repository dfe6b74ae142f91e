#include "coordinator/engine/kv_ledger.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/ledger_policy.h"

namespace strata {
namespace {

// Pages of a sequence in each full group that a stage uses.
uint32_t HeldPages(uint32_t length) {
  return static_cast<uint32_t>((uint64_t{length} + kPageTokens - 1) / kPageTokens);
}

// What a claim takes of the pages of `length` tokens.
uint32_t Claimed(uint32_t length) {
  return static_cast<uint32_t>(ledger_policy::PagesToReserve(HeldPages(length)));
}

}  // namespace

KvLedger::KvLedger(std::vector<KvStage> stages, std::vector<KvGroupSpec> groups,
                   uint64_t rows_in_flight)
    : stages_(std::move(stages)), groups_(std::move(groups)), windows_(groups_, rows_in_flight) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t s = 0; s < stages_.size(); ++s) {
    STRATA_CHECK(stages_[s].pages.size() == groups_.size());
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      Component component;
      component.stage = s;
      component.group = g;
      component.total = component.free = stages_[s].pages[g];
      components_.push_back(component);
      const uint64_t tokens = windows_.Has(g) && component.total >= windows_.MostOfOne(g)
                                  ? kMaxContextTokens
                                  : component.total * kPageTokens;
      if (component.total > 0 && tokens < least) {
        least = tokens;
        limiting_stage_ = s;
      }
    }
  }
  capacity_tokens_ = least == std::numeric_limits<uint64_t>::max() ? 0 : least;
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
  KvPages pages = Everywhere(HeldPages(length) - std::min(HeldPages(length), prefix.pages));
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

void KvLedger::SetHeld(uint64_t sequence, uint32_t least, uint32_t most) {
  STRATA_CHECK(least <= most);
  const auto part = part_shared_.find(sequence);
  for (PageBook* book : {&held_least_, &held_most_}) {
    const uint32_t length = book == &held_least_ ? least : most;
    if (!book->Has(sequence)) {
      book->Add(sequence, PageUse::kLive);
    }
    // A stage may have written to it, and then have been told to take that back.
    if (part != part_shared_.end() && (book == &held_most_ || length > part->second)) {
      book->Unshare(sequence, part->second / kPageTokens);
    }
    book->Resize(sequence, HeldPages(length));
  }
  if (part != part_shared_.end() && least > part->second) {
    part_shared_.erase(part);
  }
  windows_.SetHeld(sequence, least, most);
}

void KvLedger::HoldFork(uint64_t source, uint64_t destination, uint32_t length, bool everywhere) {
  if (length % kPageTokens > 0) {
    part_shared_[destination] = length;
  }
  for (PageBook* book : {&held_least_, &held_most_}) {
    book->Add(destination, PageUse::kLive);
    if (book->Has(source) && (everywhere || book == &held_most_)) {
      book->Share(source, destination, std::min(book->size(source), HeldPages(length)));
    }
  }
}

void KvLedger::DropHeld(uint64_t sequence) {
  part_shared_.erase(sequence);
  for (PageBook* book : {&held_least_, &held_most_}) {
    if (book->Has(sequence)) {
      book->Drop(sequence);
    }
  }
  windows_.DropHeld(sequence);
}

absl::Status KvLedger::Compare(
    const google::protobuf::RepeatedPtrField<v1::StageKv>& reported) const {
  for (const Component& component : components_) {
    const auto stage = static_cast<int>(component.stage);
    const auto group = static_cast<int>(component.group);
    const uint64_t total = reported[stage].total_pages(group);
    const uint64_t free = reported[stage].free_pages(group);
    // Held pages come from claims that fit, but a range's upper end is only a bound.
    const bool used = component.total > 0;
    const uint32_t g = component.group;
    const uint64_t pages_most = windows_.Has(g) ? windows_.HeldMost(g) : held_most_.pages();
    const uint64_t pages_least = windows_.Has(g) ? windows_.HeldLeast(g) : held_least_.pages();
    const uint64_t held_most = used ? std::min(pages_most, component.total) : 0;
    const uint64_t least = component.total - held_most;
    const uint64_t most = component.total - (used ? pages_least : 0);
    if (total == component.total && free >= least && free <= most) {
      continue;
    }
    std::string expected = std::to_string(least);
    if (most != least) {
      expected += " to " + std::to_string(most);
    }
    return Error(absl::StatusCode::kDataLoss, "KV_MISMATCH",
                 "stage " + std::to_string(stage) + " on node \"" + stages_[stage].node +
                     "\" reports " + std::to_string(free) + " free of " + std::to_string(total) +
                     " KV pages (" + KvGroupName(groups_[group]) + "), the ledger expects " +
                     expected + " of " + std::to_string(component.total))
        .Node(stages_[stage].node)
        .Fact("stage", component.stage)
        .Fact("reported_free", free)
        .Fact("expected_free", least);
  }
  return absl::OkStatus();
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
