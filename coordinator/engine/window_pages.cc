#include "coordinator/engine/window_pages.h"

#include <algorithm>

#include "common/limits.h"
#include "common/model/window.h"

namespace strata {
namespace {

// Pages of `length` tokens, less those that were freed once `committed` were known to be.
uint64_t PagesInWindow(uint32_t window, uint32_t length, uint32_t committed) {
  const auto pages = static_cast<uint32_t>((uint64_t{length} + kPageTokens - 1) / kPageTokens);
  return pages - std::min(pages, FirstSeen(committed, window) / kPageTokens);
}

}  // namespace

WindowPages::WindowPages(const std::vector<KvGroupSpec>& groups, uint64_t rows_in_flight) {
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == KvKind::kWindow) {
      const uint64_t most = MostKvPages(groups[g], kMaxContextTokens, rows_in_flight);
      groups_.push_back({.index = g, .window = groups[g].window, .most_of_one = most});
    }
  }
}

const WindowPages::Group* WindowPages::Find(uint32_t group) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [group](const Group& g) { return g.index == group; });
  return found == groups_.end() ? nullptr : &*found;
}

void WindowPages::AddClaim(PageUse use, uint64_t pages) {
  for (Group& group : groups_) {
    group.claimed[static_cast<size_t>(use)] += std::min(pages, group.most_of_one);
  }
}

void WindowPages::RemoveClaim(PageUse use, uint64_t pages) {
  for (Group& group : groups_) {
    group.claimed[static_cast<size_t>(use)] -= std::min(pages, group.most_of_one);
  }
}

void WindowPages::SetHeld(uint64_t sequence, uint32_t least, uint32_t most) {
  if (!groups_.empty()) {
    Hold(sequence, {least, most, held_[sequence].retained});
  }
}

void WindowPages::SetRetained(uint64_t sequence, uint32_t length) {
  const auto found = held_.find(sequence);
  if (found != held_.end()) {
    const Held& held = found->second;
    Hold(sequence, {held.least, held.most, std::max(held.retained, length)});
  }
}

void WindowPages::DropHeld(uint64_t sequence) {
  if (const auto found = held_.find(sequence); found != held_.end()) {
    Count(found->second, false);
    held_.erase(found);
  }
}

void WindowPages::Hold(uint64_t sequence, const Held& held) {
  Held& now = held_[sequence];
  Count(now, false);
  now = held;
  Count(now, true);
}

void WindowPages::Count(const Held& held, bool add) {
  for (Group& group : groups_) {
    // A stage may take for committed what another one rejected.
    const uint32_t known = held.least == held.most ? held.retained : held.most;
    const uint64_t least = PagesInWindow(group.window, held.least, known);
    const uint64_t most = PagesInWindow(group.window, held.most, held.retained);
    group.held_least = add ? group.held_least + least : group.held_least - least;
    group.held_most = add ? group.held_most + most : group.held_most - most;
  }
}

}  // namespace strata
