// Which token masks the last stage keeps in which of its slots: what was sent in this epoch, since
// steps come in order.
#ifndef STRATA_COORDINATOR_ENGINE_MASK_SLOTS_H_
#define STRATA_COORDINATOR_ENGINE_MASK_SLOTS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "common/limits.h"
#include "coordinator/engine/token_constraint.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// Masks that the items of one step may have, those behind drafts included: half of the slots, so
// that none is filled twice in a step, and few enough for a frame's header.
inline constexpr uint32_t kMaxMaskedItems = kMaxMaskSlots / 2;

// One thread.
class MaskSlots {
 public:
  explicit MaskSlots(uint32_t vocab) : vocab_(vocab) {}

  // How an item of `frame`, which has at most kMaxMaskedItems masks, names this one. Adds it to the
  // frame unless the stage has it, in place of the one that was named longest ago.
  v1::TokenMaskName Place(const std::shared_ptr<const NextTokens>& tokens, v1::StepFrame* frame);
  // The slots are empty.
  void Clear();

 private:
  struct Slot {
    uint32_t index = 0;
    std::shared_ptr<const NextTokens> tokens;
  };
  using Uses = std::list<Slot>;  // The last one was named last.

  const uint32_t vocab_;
  Uses uses_;
  std::unordered_map<uint64_t, Uses::iterator> by_digest_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_MASK_SLOTS_H_
