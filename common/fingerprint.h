// The fence's chain: a 64-bit value for "these tokens, in this order, computed by this
// deployment". Coordinator and workers each keep their own; they are compared at every item.
#ifndef STRATA_COMMON_FINGERPRINT_H_
#define STRATA_COMMON_FINGERPRINT_H_

#include <cstdint>
#include <string_view>

namespace strata {

using Fingerprint = uint64_t;

// A bijective 64-bit mixer (Stafford's variant 13 of MurmurHash3's finalizer).
constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 31;
  return x;
}

// The value before any token.
Fingerprint FingerprintRoot(uint64_t deployment, std::string_view weights_digest,
                            std::string_view numerics_class, std::string_view adapter_digest,
                            uint32_t rotary_variant);

// The value after one more position. `link` is its token id, or the EmbeddingLink of the row that
// replaces the token's embedding.
constexpr Fingerprint FingerprintLink(Fingerprint before, uint64_t link) {
  return Mix64(before + 0x9E3779B97F4A7C15u + link) ^ (before << 1 | before >> 63);
}

// No token id: the first 8 bytes of the SHA-256 of a row of input embeddings (float32,
// little-endian), little-endian, with the highest bit set.
uint64_t EmbeddingLink(std::string_view values);
inline constexpr uint64_t kEmbeddingLinkBit = uint64_t{1} << 63;

}  // namespace strata

#endif  // STRATA_COMMON_FINGERPRINT_H_
