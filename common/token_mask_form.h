// Masks of tokens as they travel in a step's frame. Pure; any thread.
#ifndef STRATA_COMMON_TOKEN_MASK_FORM_H_
#define STRATA_COMMON_TOKEN_MASK_FORM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "strata/v1/shard.pb.h"

namespace strata {

// Of a mask's words: one bit for each id, the lowest bit of the first word being id 0.
constexpr size_t MaskWords(uint32_t vocab) { return (size_t{vocab} + 31) / 32; }
inline bool MaskHas(std::span<const uint32_t> words, uint32_t id) {
  return (words[id / 32] >> (id % 32) & 1) != 0;
}

// Names the words on the wire. Equal words have equal digests.
uint64_t TokenMaskDigest(std::span<const uint32_t> words);

// `words`, MaskWords(vocab) of them without bits beyond the vocabulary, in the shortest form. Does
// not set the name.
v1::TokenMask EncodeTokenMask(std::span<const uint32_t> words, uint32_t vocab);

// The words, if the mask has exactly one form, names ids of the vocabulary alone, and has the
// digest of its name.
std::optional<std::vector<uint32_t>> DecodeTokenMask(const v1::TokenMask& mask, uint32_t vocab);

}  // namespace strata

#endif  // STRATA_COMMON_TOKEN_MASK_FORM_H_
