// Drafts from the session's own tokens, prompt and answer: where the newest ones stood before, they
// are taken to go on as they did there.
#ifndef STRATA_COORDINATOR_ENGINE_LOOKUP_DRAFTER_H_
#define STRATA_COORDINATOR_ENGINE_LOOKUP_DRAFTER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/engine/copy_follower.h"
#include "coordinator/engine/draft_context.h"
#include "coordinator/engine/drafter.h"

namespace strata {

// An index of the places where three tokens follow one another: of each three the newest four, by a
// hash, so that one place may push out another's. Of those that the newest three tokens have, and
// of the one that the draft before was from, the place counts before which the most tokens are
// alike, and among equals the latter, then the newest. That one counts also where tokens were
// changed since, as one of another edit would (copy_follower.h). Of long prompts each call indexes
// a part. One thread.
class LookupDrafter : public Drafter {
 public:
  // Tokens that one call indexes at most.
  static constexpr uint32_t kMostIndexed = 4096;
  // Hashes that the index of a session has at most, of 16 bytes each.
  static constexpr uint32_t kMostSlots = 1 << 14;

  // For a session of at most so many tokens.
  explicit LookupDrafter(uint32_t most_tokens);

  Draft Next(std::span<const uint32_t> tokens, uint32_t most) override;
  // By the index alone.
  Draft Behind(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
               uint32_t most) override;

 private:
  void Index(std::span<const uint32_t> tokens);
  size_t SlotOf(std::span<const uint32_t> tokens, uint32_t end) const;

  const uint32_t slot_count_;  // A power of two.
  // Places, by the number of tokens up to their end; 0: none. The newest first.
  std::vector<std::array<uint32_t, 4>> slots_;
  uint32_t indexed_ = 0;  // Places that end at or before it are.
  CopyFollower copy_;     // From the newest draft's place.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_LOOKUP_DRAFTER_H_
