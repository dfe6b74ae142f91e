#include "coordinator/engine/window_pages.h"

#include <algorithm>

#include "common/limits.h"
#include "common/model/window.h"
#include "coordinator/engine/kv_stage.h"

namespace strata {
namespace {

// Pages of `length` tokens, less those that were freed once `committed` were known to be.
uint64_t PagesInWindow(uint32_t window, uint32_t length, uint32_t committed) {
  const uint32_t pages = FullGroupPages(length);
  return pages - std::min(pages, FirstSeen(committed, window) / kPageTokens);
}

// The window group of this index; null: it is none.
template <typename Group>
const Group* FindGroup(const std::vector<Group>& groups, uint32_t index) {
  const auto found = std::find_if(groups.begin(), groups.end(),
                                  [index](const Group& group) { return group.index == index; });
  return found == groups.end() ? nullptr : &*found;
}

}  // namespace

ClaimedWindowPages::ClaimedWindowPages(const std::vector<KvGroupSpec>& groups,
                                       uint64_t rows_in_flight) {
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == KvKind::kWindow) {
      const uint64_t most = MostKvPages(groups[g], kMaxContextTokens, rows_in_flight);
      groups_.push_back({.index = g, .most_of_one = most});
    }
  }
}

const ClaimedWindowPages::Group* ClaimedWindowPages::Find(uint32_t group) const {
  return FindGroup(groups_, group);
}

void ClaimedWindowPages::AddClaim(PageUse use, uint64_t pages) {
  for (Group& group : groups_) {
    group.claimed[static_cast<size_t>(use)] += std::min(pages, group.most_of_one);
  }
}

void ClaimedWindowPages::RemoveClaim(PageUse use, uint64_t pages) {
  for (Group& group : groups_) {
    group.claimed[static_cast<size_t>(use)] -= std::min(pages, group.most_of_one);
  }
}

HeldWindowPages::HeldWindowPages(const std::vector<KvGroupSpec>& groups) {
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == KvKind::kWindow) {
      groups_.push_back({.index = g, .window = groups[g].window});
    }
  }
}

const HeldWindowPages::Group* HeldWindowPages::Find(uint32_t group) const {
  return FindGroup(groups_, group);
}

void HeldWindowPages::SetHeld(uint64_t sequence, uint32_t least, uint32_t most) {
  if (!groups_.empty()) {
    Hold(sequence, {least, most, held_[sequence].retained});
  }
}

void HeldWindowPages::SetRetained(uint64_t sequence, uint32_t length) {
  const auto found = held_.find(sequence);
  if (found != held_.end()) {
    const Held& held = found->second;
    Hold(sequence, {held.least, held.most, std::max(held.retained, length)});
  }
}

void HeldWindowPages::DropHeld(uint64_t sequence) {
  if (const auto found = held_.find(sequence); found != held_.end()) {
    Count(found->second, false);
    held_.erase(found);
  }
}

void HeldWindowPages::Hold(uint64_t sequence, const Held& held) {
  Held& now = held_[sequence];
  Count(now, false);
  now = held;
  Count(now, true);
}

void HeldWindowPages::Count(const Held& held, bool add) {
  for (Group& group : groups_) {
    // A stage may take for committed what another one rejected.
    const uint32_t known = held.least == held.most ? held.retained : held.most;
    const uint64_t least = PagesInWindow(group.window, held.least, known);
    const uint64_t most = PagesInWindow(group.window, held.most, held.retained);
    group.least = add ? group.least + least : group.least - least;
    group.most = add ? group.most + most : group.most - most;
  }
}

}  // namespace strata
