#include "coordinator/engine/lookup_drafter.h"

#include <algorithm>
#include <bit>

#include "common/fingerprint.h"

namespace strata {
namespace {

constexpr uint32_t kLeastSlots = 1 << 8;

// Tokens before `end` that are those before the end of `tokens`.
uint32_t Matched(std::span<const uint32_t> tokens, uint32_t end) {
  const auto size = static_cast<uint32_t>(tokens.size());
  const uint32_t most = std::min(end, LookupDrafter::kMostMatched);
  uint32_t matched = 0;
  while (matched < most && tokens[end - 1 - matched] == tokens[size - 1 - matched]) {
    ++matched;
  }
  return matched;
}

}  // namespace

LookupDrafter::LookupDrafter(uint32_t most_tokens)
    : slot_count_(std::bit_ceil(std::clamp(most_tokens, kLeastSlots, kMostSlots))) {}

size_t LookupDrafter::SlotOf(std::span<const uint32_t> tokens, uint32_t end) const {
  uint64_t hash = 0;
  for (uint32_t i = end - kLeastMatched; i < end; ++i) {
    hash = Mix64(hash ^ tokens[i]);
  }
  return hash & (slot_count_ - 1);
}

void LookupDrafter::Index(std::span<const uint32_t> tokens) {
  slots_.resize(slot_count_);
  // Not the last one: nothing is known to follow it.
  const auto most = static_cast<uint32_t>(tokens.size()) - 1;
  const uint32_t end = std::min(most, indexed_ + kMostIndexed);
  for (uint32_t place = std::max(indexed_ + 1, kLeastMatched); place <= end; ++place) {
    std::array<uint32_t, 4>& slot = slots_[SlotOf(tokens, place)];
    std::rotate(slot.begin(), slot.end() - 1, slot.end());
    slot.front() = place;
  }
  indexed_ = std::max(indexed_, end);
}

Draft LookupDrafter::Next(std::span<const uint32_t> tokens, uint32_t most) {
  const auto size = static_cast<uint32_t>(tokens.size());
  if (size <= kLeastMatched) {
    return {};
  }
  Index(tokens);
  uint32_t place = 0;
  uint32_t matched = kLeastMatched - 1;
  const auto consider = [&](uint32_t end) {
    const uint32_t here = end == 0 ? 0 : Matched(tokens, end);
    if (here > matched) {
      place = end;
      matched = here;
    }
  };
  consider(distance_ < size ? (distance_ > 0 ? size - distance_ : 0) : 0);
  for (const uint32_t end : slots_[SlotOf(tokens, size)]) {
    consider(end);
  }
  if (place == 0) {
    return {};
  }
  distance_ = size - place;
  Draft draft;
  draft.matched = matched;
  for (uint32_t i = 0; i < most; ++i) {
    // Behind what is known it repeats itself.
    draft.tokens.push_back(place + i < size ? tokens[place + i] : draft.tokens[place + i - size]);
  }
  return draft;
}

}  // namespace strata
