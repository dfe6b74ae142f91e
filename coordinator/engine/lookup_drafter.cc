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
  const uint32_t most = std::min(end, kMostMatched);
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
  copy_.Follow(tokens);
  uint32_t place = 0;
  uint32_t matched = kLeastMatched - 1;
  bool behind_change = false;
  if (copy_.changed() ? copy_.may_go_on() : copy_.matched() >= kLeastMatched) {
    place = size - copy_.distance();
    behind_change = copy_.changed();
    // What was copied before a change speaks for the place once a token behind it does.
    const uint32_t before = behind_change && copy_.matched() > 0 ? copy_.before() : 0;
    matched = std::clamp(before + copy_.matched(), matched, kMostMatched);
  }
  for (const uint32_t end : slots_[SlotOf(tokens, size)]) {
    const uint32_t here = end == 0 ? 0 : Matched(tokens, end);
    if (here > matched) {
      place = end;
      matched = here;
      behind_change = false;
    }
  }
  if (place == 0) {
    return {};
  }
  if (size - place != copy_.distance()) {
    copy_.Begin(size - place, size, matched);
  }
  Draft draft;
  draft.matched = behind_change ? 0 : matched;
  for (uint32_t i = 0; i < most; ++i) {
    // Behind what is known it repeats itself.
    draft.tokens.push_back(
        copy_.Became(place + i < size ? tokens[place + i] : draft.tokens[place + i - size]));
  }
  return draft;
}

Draft LookupDrafter::Behind(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
                            uint32_t most) {
  const DraftContext context{tokens, ahead};
  const uint32_t size = context.size();
  Draft draft;
  if (slots_.empty() || size <= kLeastMatched) {
    return draft;
  }
  uint32_t place = 0;
  uint32_t matched = kLeastMatched - 1;
  for (const uint32_t end : slots_[PlaceHash(context, size) & (slot_count_ - 1)]) {
    const uint32_t here = end == 0 ? 0 : strata::Matched(context, end, context);
    if (here > matched) {
      place = end;
      matched = here;
    }
  }
  if (place == 0) {
    return draft;
  }
  draft.matched = matched;
  for (uint32_t i = 0; i < most; ++i) {
    draft.tokens.push_back(place + i < size ? context[place + i] : draft.tokens[place + i - size]);
  }
  return draft;
}

}  // namespace strata
