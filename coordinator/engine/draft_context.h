// The tokens that drafts follow.
#ifndef STRATA_COORDINATOR_ENGINE_DRAFT_CONTEXT_H_
#define STRATA_COORDINATOR_ENGINE_DRAFT_CONTEXT_H_

#include <cstdint>
#include <span>

#include "common/fingerprint.h"

namespace strata {

// Tokens that speak for a place where others followed: at least, and as many as are looked at.
inline constexpr uint32_t kLeastMatched = 3;
inline constexpr uint32_t kMostMatched = 32;

// What is known, and what may follow it.
struct DraftContext {
  std::span<const uint32_t> known;
  std::span<const uint32_t> ahead = {};

  uint32_t size() const { return static_cast<uint32_t>(known.size() + ahead.size()); }
  uint32_t operator[](uint32_t i) const {
    return i < known.size() ? known[i] : ahead[i - known.size()];
  }
};

// Of the kLeastMatched tokens before `end`.
template <typename Tokens>
uint64_t PlaceHash(const Tokens& tokens, uint32_t end) {
  uint64_t hash = 0;
  for (uint32_t i = end - kLeastMatched; i < end; ++i) {
    hash = Mix64(hash ^ tokens[i]);
  }
  return hash;
}

// Tokens before `end` of `text` that are those before the end of `context`; at most kMostMatched.
template <typename Tokens>
uint32_t Matched(const Tokens& text, uint32_t end, const DraftContext& context) {
  const uint32_t size = context.size();
  const uint32_t most = end < size ? end : size;
  uint32_t matched = 0;
  while (matched < most && matched < kMostMatched &&
         text[end - 1 - matched] == context[size - 1 - matched]) {
    ++matched;
  }
  return matched;
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_DRAFT_CONTEXT_H_
