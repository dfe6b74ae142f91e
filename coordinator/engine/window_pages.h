// The accounts of window groups, of which a sequence has the newest pages alone: what claims take
// of them (part of KvLedger), and what sequences hold (part of HeldKv).
#ifndef STRATA_COORDINATOR_ENGINE_WINDOW_PAGES_H_
#define STRATA_COORDINATOR_ENGINE_WINDOW_PAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/model/model_spec.h"
#include "coordinator/prefix/page_book.h"

namespace strata {

// A group is named by its index among all KV groups. `rows_in_flight`: the most tokens of a
// sequence that are sent and that a stage does not know to be committed. One thread.
class ClaimedWindowPages {
 public:
  ClaimedWindowPages(const std::vector<KvGroupSpec>& groups, uint64_t rows_in_flight);

  bool empty() const { return groups_.empty(); }
  // Whether it is a window group; the rest is asked of such alone.
  bool Has(uint32_t group) const { return Find(group) != nullptr; }
  // The most pages that a sequence of any length has.
  uint64_t MostOfOne(uint32_t group) const { return Find(group)->most_of_one; }

  // A claim of so many pages in a full group counts from now on; or does not any more.
  void AddClaim(PageUse use, uint64_t pages);
  void RemoveClaim(PageUse use, uint64_t pages);
  uint64_t Claimed(uint32_t group, PageUse use) const {
    return Find(group)->claimed[static_cast<size_t>(use)];
  }

 private:
  struct Group {
    uint32_t index = 0;
    uint64_t most_of_one = 0;
    std::array<uint64_t, kPageUses> claimed{};
  };

  const Group* Find(uint32_t group) const;

  std::vector<Group> groups_;
};

// A group is named by its index among all KV groups, a sequence by its number. One thread.
class HeldWindowPages {
 public:
  explicit HeldWindowPages(const std::vector<KvGroupSpec>& groups);

  bool empty() const { return groups_.empty(); }
  // Whether it is a window group; the rest is asked of such alone.
  bool Has(uint32_t group) const { return Find(group) != nullptr; }

  // See HeldKv.
  void SetHeld(uint64_t sequence, uint32_t least, uint32_t most);
  void SetRetained(uint64_t sequence, uint32_t length);
  void DropHeld(uint64_t sequence);
  uint64_t HeldLeast(uint32_t group) const { return Find(group)->least; }
  uint64_t HeldMost(uint32_t group) const { return Find(group)->most; }

 private:
  // Tokens of a sequence.
  struct Held {
    uint32_t least = 0;
    uint32_t most = 0;
    uint32_t retained = 0;
  };
  // Pages of all sequences.
  struct Group {
    uint32_t index = 0;
    uint32_t window = 0;
    uint64_t least = 0;
    uint64_t most = 0;
  };

  const Group* Find(uint32_t group) const;
  void Hold(uint64_t sequence, const Held& held);
  void Count(const Held& held, bool add);

  std::vector<Group> groups_;
  std::unordered_map<uint64_t, Held> held_;  // By sequence.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_WINDOW_PAGES_H_
