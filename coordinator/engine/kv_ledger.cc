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

bool KvLedger::Fits(uint32_t length, const KvSpare& spare) const {
  for (const Component& component : components_) {
    const double most = std::ceil(spare.most_share * static_cast<double>(component.pages.total));
    const uint64_t left = std::min(spare.pages, static_cast<uint64_t>(most));
    if (Need(component, length) + left > component.pages.free) {
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
  claims_[id] = {length, length, false};
  CheckSums();
  return id;
}

uint32_t KvLedger::Covers(ClaimId claim) const { return claims_.at(claim).length; }

bool KvLedger::Grow(ClaimId claim, uint32_t length) {
  Claim& grown = claims_.at(claim);
  STRATA_CHECK(!grown.fenced && length >= grown.length);
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

void KvLedger::SetFenced(ClaimId claim, bool fenced) {
  const auto it = claims_.find(claim);
  STRATA_CHECK(it != claims_.end() && it->second.fenced != fenced);
  it->second.fenced = fenced;
  for (Component& component : components_) {
    const uint64_t claimed = Claimed(component, it->second.charged);
    uint64_t& from = fenced ? component.pages.live : component.pages.fenced;
    uint64_t& to = fenced ? component.pages.fenced : component.pages.live;
    STRATA_CHECK(from >= claimed);
    from -= claimed;
    to += claimed;
  }
  CheckSums();
}

void KvLedger::Fence(ClaimId claim) { SetFenced(claim, true); }
void KvLedger::Unfence(ClaimId claim) { SetFenced(claim, false); }

void KvLedger::Free(ClaimId claim) {
  const auto it = claims_.find(claim);
  STRATA_CHECK(it != claims_.end());
  for (Component& component : components_) {
    const uint64_t claimed = Claimed(component, it->second.charged);
    uint64_t& from = it->second.fenced ? component.pages.fenced : component.pages.live;
    STRATA_CHECK(from >= claimed);
    from -= claimed;
    component.pages.free += claimed;
  }
  claims_.erase(it);
  CheckSums();
}

void KvLedger::SetHeld(uint64_t generation, uint32_t least, uint32_t most) {
  STRATA_CHECK(least <= most);
  Held& held = held_[generation];
  for (Component& component : components_) {
    component.held_least += Need(component, least) - Need(component, held.least);
    component.held_most += Need(component, most) - Need(component, held.most);
  }
  held = {least, most};
}

void KvLedger::DropHeld(uint64_t generation) {
  SetHeld(generation, 0, 0);
  held_.erase(generation);
}

absl::Status KvLedger::Compare(
    const google::protobuf::RepeatedPtrField<v1::StageKv>& reported) const {
  for (const Component& component : components_) {
    const auto stage = static_cast<int>(component.pages.stage);
    const auto group = static_cast<int>(component.pages.group);
    const uint64_t total = reported[stage].total_pages(group);
    const uint64_t free = reported[stage].free_pages(group);
    // Held pages come from claims that fit, but a range's upper end is only a bound.
    const uint64_t held_most = std::min(component.held_most, component.pages.total);
    const uint64_t least = component.pages.total - held_most;
    const uint64_t most = component.pages.total - component.held_least;
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
