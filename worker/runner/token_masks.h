// The masks that a last stage keeps for the items that name them, in the slots that the coordinator
// puts them into.
#ifndef STRATA_WORKER_RUNNER_TOKEN_MASKS_H_
#define STRATA_WORKER_RUNNER_TOKEN_MASKS_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// One thread.
class TokenMasks {
 public:
  // For rows of `vocab` logits.
  explicit TokenMasks(uint32_t vocab) : vocab_(vocab) {}

  // A frame's. One that makes no sense leaves its slot empty, so that only who names it fails.
  void Keep(const v1::StepFrame& frame);
  void Clear() { kept_.clear(); }

  // Of an item that samples and names one: its words, which live until the next frame. Empty: there
  // is none of this name.
  std::span<const uint32_t> Find(const v1::TokenMaskName& name) const;
  // FAILED_PRECONDITION (MASK_NOT_FOUND) where the item names a mask that is not kept, for what
  // comes next or behind one of its drafts;
  // INVALID_ARGUMENT (TOKEN_MASK) where it names one and samples nothing.
  absl::Status Check(const v1::StepItem& item) const;

 private:
  struct Mask {
    uint64_t digest = 0;
    std::vector<uint32_t> words;
  };

  absl::Status CheckKept(const v1::TokenMaskName& name) const;

  const uint32_t vocab_;
  std::map<uint32_t, Mask> kept_;  // By slot.
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_TOKEN_MASKS_H_
