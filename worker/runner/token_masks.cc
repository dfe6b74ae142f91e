#include "worker/runner/token_masks.h"

#include <optional>
#include <string>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "common/token_mask_form.h"

namespace strata {

void TokenMasks::Keep(const v1::StepFrame& frame) {
  for (const v1::TokenMask& mask : frame.masks()) {
    const uint32_t slot = mask.name().slot();
    kept_.erase(slot);
    std::optional<std::vector<uint32_t>> words = DecodeTokenMask(mask, vocab_);
    if (words.has_value() && slot < kMaxMaskSlots) {
      kept_[slot] = {mask.name().digest(), *std::move(words)};
    }
  }
}

std::span<const uint32_t> TokenMasks::Find(const v1::TokenMaskName& name) const {
  const auto kept = kept_.find(name.slot());
  return kept != kept_.end() && kept->second.digest == name.digest()
             ? std::span<const uint32_t>(kept->second.words)
             : std::span<const uint32_t>();
}

absl::Status TokenMasks::Check(const v1::StepItem& item) const {
  if (!item.has_mask()) {
    return absl::OkStatus();
  }
  if (!item.sample()) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKEN_MASK",
                 "an item names a token mask and samples no token");
  }
  RETURN_IF_ERROR(CheckKept(item.mask()));
  for (const v1::TokenMaskName& name : item.draft_masks()) {
    RETURN_IF_ERROR(CheckKept(name));
  }
  return absl::OkStatus();
}

absl::Status TokenMasks::CheckKept(const v1::TokenMaskName& name) const {
  if (Find(name).empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "MASK_NOT_FOUND",
                 "slot " + std::to_string(name.slot()) +
                     " does not hold the token mask that an item names")
        .Hint("send the mask again");
  }
  return absl::OkStatus();
}

}  // namespace strata
