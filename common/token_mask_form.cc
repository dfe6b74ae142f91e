#include "common/token_mask_form.h"

#include <bit>
#include <string>

#include "common/fingerprint.h"

namespace strata {
namespace {

// A list is taken where it has so few ids that it is shorter than the bits, at two bytes each.
constexpr uint64_t kListBytes = 2;

void SetId(std::vector<uint32_t>* words, uint32_t id, bool allowed) {
  const uint32_t bit = uint32_t{1} << (id % 32);
  if (allowed) {
    (*words)[id / 32] |= bit;
  } else {
    (*words)[id / 32] &= ~bit;
  }
}

// The ids of the vocabulary that are in the mask, or those that are not.
void AddGaps(std::span<const uint32_t> words, uint32_t vocab, bool allowed, v1::TokenIdGaps* out) {
  uint32_t last = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    // Most words have none.
    for (uint32_t left = allowed ? words[i] : ~words[i]; left != 0; left &= left - 1) {
      const auto id = static_cast<uint32_t>(i * 32 + static_cast<size_t>(std::countr_zero(left)));
      if (id < vocab) {
        out->add_gaps(id - last);
        last = id;
      }
    }
  }
}

std::vector<uint32_t> AllIds(uint32_t vocab) {
  std::vector<uint32_t> words(MaskWords(vocab), ~uint32_t{0});
  if (vocab % 32 != 0) {
    words.back() = (uint32_t{1} << (vocab % 32)) - 1;
  }
  return words;
}

bool ReadGaps(const v1::TokenIdGaps& gaps, uint32_t vocab, bool allowed,
              std::vector<uint32_t>* words) {
  uint64_t id = 0;
  for (int i = 0; i < gaps.gaps_size(); ++i) {
    id += gaps.gaps(i);
    if (id >= vocab || (i > 0 && gaps.gaps(i) == 0)) {
      return false;
    }
    SetId(words, static_cast<uint32_t>(id), allowed);
  }
  return true;
}

bool ReadBits(const std::string& bits, uint32_t vocab, std::vector<uint32_t>* words) {
  if (bits.size() != (size_t{vocab} + 7) / 8) {
    return false;
  }
  for (size_t i = 0; i < bits.size(); ++i) {
    (*words)[i / 4] |= uint32_t{static_cast<uint8_t>(bits[i])} << (i % 4 * 8);
  }
  return vocab % 32 == 0 || words->back() >> (vocab % 32) == 0;
}

}  // namespace

uint64_t TokenMaskDigest(std::span<const uint32_t> words) {
  Fingerprint digest = words.size();
  for (size_t i = 0; i < words.size(); i += 2) {
    const uint64_t high = i + 1 < words.size() ? words[i + 1] : 0;
    digest = FingerprintLink(digest, high << 32 | words[i]);
  }
  return digest;
}

v1::TokenMask EncodeTokenMask(std::span<const uint32_t> words, uint32_t vocab) {
  uint64_t allowed = 0;
  for (const uint32_t word : words) {
    allowed += static_cast<uint64_t>(std::popcount(word));
  }
  v1::TokenMask mask;
  const uint64_t bytes = (uint64_t{vocab} + 7) / 8;
  if (allowed * kListBytes < bytes) {
    AddGaps(words, vocab, true, mask.mutable_allowed());
  } else if ((vocab - allowed) * kListBytes < bytes) {
    AddGaps(words, vocab, false, mask.mutable_barred());
  } else {
    std::string* bits = mask.mutable_bits();
    bits->resize(bytes);
    for (size_t i = 0; i < bits->size(); ++i) {
      (*bits)[i] = static_cast<char>(words[i / 4] >> (i % 4 * 8));
    }
  }
  return mask;
}

std::optional<std::vector<uint32_t>> DecodeTokenMask(const v1::TokenMask& mask, uint32_t vocab) {
  const int forms =
      (mask.bits().empty() ? 0 : 1) + (mask.has_allowed() ? 1 : 0) + (mask.has_barred() ? 1 : 0);
  if (forms != 1) {
    return std::nullopt;
  }
  std::vector<uint32_t> words =
      mask.has_barred() ? AllIds(vocab) : std::vector<uint32_t>(MaskWords(vocab), 0);
  const bool read = mask.has_allowed()  ? ReadGaps(mask.allowed(), vocab, true, &words)
                    : mask.has_barred() ? ReadGaps(mask.barred(), vocab, false, &words)
                                        : ReadBits(mask.bits(), vocab, &words);
  if (!read || TokenMaskDigest(words) != mask.name().digest()) {
    return std::nullopt;
  }
  return words;
}

}  // namespace strata
