#include "coordinator/engine/mask_slots.h"

#include <iterator>

#include "common/token_mask_form.h"

namespace strata {

v1::TokenMaskName MaskSlots::Place(const std::shared_ptr<const NextTokens>& tokens,
                                   v1::StepFrame* frame) {
  v1::TokenMaskName name;
  name.set_digest(tokens->digest);
  const auto known = by_digest_.find(tokens->digest);
  if (known != by_digest_.end()) {
    const Uses::iterator use = known->second;
    if (use->tokens == tokens || use->tokens->bits == tokens->bits) {
      uses_.splice(uses_.end(), uses_, use);
      name.set_slot(use->index);
      return name;
    }
  }
  if (uses_.size() < kMaxMaskSlots) {
    uses_.push_back({static_cast<uint32_t>(uses_.size()), tokens});
  } else {
    const auto oldest = by_digest_.find(uses_.front().tokens->digest);
    if (oldest != by_digest_.end() && oldest->second == uses_.begin()) {
      by_digest_.erase(oldest);
    }
    uses_.splice(uses_.end(), uses_, uses_.begin());
    uses_.back().tokens = tokens;
  }
  by_digest_[tokens->digest] = std::prev(uses_.end());
  name.set_slot(uses_.back().index);
  v1::TokenMask* mask = frame->add_masks();
  *mask = EncodeTokenMask(tokens->bits, vocab_);
  *mask->mutable_name() = name;
  return name;
}

void MaskSlots::Clear() {
  uses_.clear();
  by_digest_.clear();
}

}  // namespace strata
