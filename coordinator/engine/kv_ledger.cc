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

// Pages of a sequence in each group that a stage uses: as KvLedger::PagesFor, every group keeps all
// tokens.
uint32_t HeldPages(uint32_t length) {
  return static_cast<uint32_t>((uint64_t{length} + kPageTokens - 1) / kPageTokens);
}

}  // namespace

KvLedger::KvLedger(std::vector<KvStage> stages, std::vector<KvGroupSpec> groups)
    : stages_(std::move(stages)), groups_(std::move(groups)) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t s = 0; s < stages_.size(); ++s) {
    STRATA_CHECK(stages_[s].pages.size() == groups_.size());
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      Component component;
      component.pages.stage = s;
      component.pages.group = g;
      component.pages.total = component.pages.free = stages_[s].pages[g];
      components_.push_back(component);
      const uint64_t tokens = component.pages.total * kPageTokens;
      if (component.pages.total > 0 && tokens < least) {
        least = tokens;
        limiting_stage_ = s;
      }
    }
  }
  capacity_tokens_ = least == std::numeric_limits<uint64_t>::max() ? 0 : least;
}

uint64_t KvLedger::PagesFor(const KvGroupSpec& group, uint32_t length) {
  // Window groups free pages behind the window one day; until then every group keeps all tokens.
  return (uint64_t{length} + kPageTokens - 1) / kPageTokens;
}

uint64_t KvLedger::Need(const Component& component, uint32_t length) const {
  return component.pages.total == 0 ? 0 : PagesFor(groups_[component.pages.group], length);
}

uint64_t KvLedger::Claimed(const Component& component, uint32_t length) const {
  return ledger_policy::PagesToReserve(Need(component, length));
}

KvPages KvLedger::Asked(uint32_t length, const KvSpare& spare) const {
  KvPages pages;
  for (const Component& component : components_) {
    const double most = std::ceil(spare.most_share * static_cast<double>(component.pages.total));
    pages.push_back(Need(component, length) + std::min(spare.pages, static_cast<uint64_t>(most)));
  }
  return pages;
}

bool KvLedger::Fits(uint32_t length, const KvSpare& spare) const {
  const KvPages asked = Asked(length, spare);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] > components_[i].pages.free) {
      return false;
    }
  }
  return length <= capacity_tokens_;
}

bool KvLedger::FitsWithoutCached(uint32_t length, const KvSpare& spare) const {
  const KvPages asked = Asked(length, spare);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] > components_[i].pages.free + components_[i].pages.cached) {
      return false;
    }
  }
  return length <= capacity_tokens_;
}

std::optional<KvLedger::ClaimId> KvLedger::Reserve(uint32_t length, const KvSpare& spare) {
  if (!Fits(length, spare)) {
    return std::nullopt;
  }
  for (Component& component : components_) {
    const uint64_t claimed = Claimed(component, length);
    component.pages.free -= claimed;
    component.pages.live += claimed;
  }
  const ClaimId id = next_claim_++;
  claims_[id] = {length, length, PageUse::kLive};
  CheckSums();
  return id;
}

uint32_t KvLedger::Covers(ClaimId claim) const { return claims_.at(claim).length; }

bool KvLedger::Grow(ClaimId claim, uint32_t length) {
  Claim& grown = claims_.at(claim);
  STRATA_CHECK(grown.use == PageUse::kLive && length >= grown.length);
  const uint32_t charged = ledger_policy::TokensToCharge(grown.charged, length);
  for (const Component& component : components_) {
    if (Claimed(component, charged) - Claimed(component, grown.charged) > component.pages.free) {
      return false;
    }
  }
  for (Component& component : components_) {
    const uint64_t more = Claimed(component, charged) - Claimed(component, grown.charged);
    component.pages.free -= more;
    component.pages.live += more;
  }
  grown.length = length;
  grown.charged = charged;
  CheckSums();
  return true;
}

KvPages KvLedger::Growth(ClaimId claim, uint32_t length) const {
  const uint32_t charged = claims_.at(claim).charged;
  KvPages pages;
  for (const Component& component : components_) {
    pages.push_back(Claimed(component, std::max(charged, length)) - Claimed(component, charged));
  }
  return pages;
}

KvPages KvLedger::PagesOf(ClaimId claim) const {
  KvPages pages;
  for (const Component& component : components_) {
    pages.push_back(Claimed(component, claims_.at(claim).charged));
  }
  return pages;
}

KvPages KvLedger::Free() const {
  KvPages pages;
  for (const Component& component : components_) {
    pages.push_back(component.pages.free);
  }
  return pages;
}

uint64_t KvLedger::MostCached() const {
  uint64_t most = 0;
  for (const Component& component : components_) {
    most = std::max(most, component.pages.cached);
  }
  return most;
}

void KvLedger::SetUse(ClaimId claim, PageUse use) {
  const auto it = claims_.find(claim);
  STRATA_CHECK(it != claims_.end() && it->second.use != use);
  cached_claims_ -= it->second.use == PageUse::kCached ? 1 : 0;
  cached_claims_ += use == PageUse::kCached ? 1 : 0;
  for (Component& component : components_) {
    const uint64_t claimed = Claimed(component, it->second.charged);
    uint64_t& from = component.of(it->second.use);
    STRATA_CHECK(from >= claimed);
    from -= claimed;
    component.of(use) += claimed;
  }
  it->second.use = use;
  CheckSums();
}

KvLedger::ClaimId KvLedger::SplitOff(ClaimId claim, uint32_t length) {
  Claim& kept = claims_.at(claim);
  STRATA_CHECK(length % kPageTokens == 0 && length <= kept.length);
  const uint32_t charged = std::min(kept.charged, length);
  const ClaimId id = next_claim_++;
  const Claim rest{kept.length - length, kept.charged - charged, PageUse::kFenced};
  for (Component& component : components_) {
    const uint64_t moved = Claimed(component, kept.charged) - Claimed(component, charged);
    component.of(kept.use) -= moved;
    component.of(rest.use) += moved;
  }
  kept.length = length;
  kept.charged = charged;
  claims_.emplace(id, rest);
  CheckSums();
  return id;
}

void KvLedger::Free(ClaimId claim) {
  const auto it = claims_.find(claim);
  STRATA_CHECK(it != claims_.end());
  for (Component& component : components_) {
    const uint64_t claimed = Claimed(component, it->second.charged);
    uint64_t& from = component.of(it->second.use);
    STRATA_CHECK(from >= claimed);
    from -= claimed;
    component.pages.free += claimed;
  }
  cached_claims_ -= it->second.use == PageUse::kCached ? 1 : 0;
  claims_.erase(it);
  CheckSums();
}

void KvLedger::SetHeld(uint64_t generation, uint32_t least, uint32_t most) {
  STRATA_CHECK(least <= most);
  for (PageBook* book : {&held_least_, &held_most_}) {
    if (!book->Has(generation)) {
      book->Add(generation, PageUse::kLive);
    }
    book->Resize(generation, HeldPages(book == &held_least_ ? least : most));
  }
}

void KvLedger::HoldFork(uint64_t source, uint64_t destination, uint32_t length, bool everywhere) {
  STRATA_CHECK(length % kPageTokens == 0);
  for (PageBook* book : {&held_least_, &held_most_}) {
    book->Add(destination, PageUse::kLive);
    if (book->Has(source) && (everywhere || book == &held_most_)) {
      book->Share(source, destination, std::min(book->size(source), HeldPages(length)));
    }
  }
}

void KvLedger::DropHeld(uint64_t generation) {
  for (PageBook* book : {&held_least_, &held_most_}) {
    if (book->Has(generation)) {
      book->Drop(generation);
    }
  }
}

absl::Status KvLedger::Compare(
    const google::protobuf::RepeatedPtrField<v1::StageKv>& reported) const {
  for (const Component& component : components_) {
    const auto stage = static_cast<int>(component.pages.stage);
    const auto group = static_cast<int>(component.pages.group);
    const uint64_t total = reported[stage].total_pages(group);
    const uint64_t free = reported[stage].free_pages(group);
    // Held pages come from claims that fit, but a range's upper end is only a bound.
    const bool used = component.pages.total > 0;
    const uint64_t held_most = used ? std::min(held_most_.pages(), component.pages.total) : 0;
    const uint64_t least = component.pages.total - held_most;
    const uint64_t most = component.pages.total - (used ? held_least_.pages() : 0);
    if (total == component.pages.total && free >= least && free <= most) {
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
                     expected + " of " + std::to_string(component.pages.total))
        .Node(stages_[stage].node)
        .Fact("stage", component.pages.stage)
        .Fact("reported_free", free)
        .Fact("expected_free", least);
  }
  return absl::OkStatus();
}

std::vector<KvSnapshot> KvLedger::Snapshot() const {
  std::vector<KvSnapshot> snapshot;
  snapshot.reserve(components_.size());
  for (const Component& component : components_) {
    snapshot.push_back(component.pages);
  }
  return snapshot;
}

void KvLedger::CheckSums() const {
  for (const Component& component : components_) {
    const KvSnapshot& pages = component.pages;
    STRATA_CHECK(pages.free + pages.live + pages.cached + pages.fenced == pages.total);
  }
}

}  // namespace strata
