// Names of prefixes by content: a SHA-256 chain over blocks of tokens. Equal keys mean equal
// tokens, computed alike and for the same tenant; what anything is called plays no part.
#ifndef STRATA_COORDINATOR_PREFIX_PREFIX_CHAIN_H_
#define STRATA_COORDINATOR_PREFIX_PREFIX_CHAIN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/digest.h"
#include "common/fingerprint.h"

namespace strata {

using PrefixKey = Sha256Bytes;

// All that KV depends on besides the tokens, and whose it is.
struct PrefixScope {
  std::string weights_digest;
  std::string numerics_class;
  std::string adapter_digest;
  uint32_t rotary_variant = 0;
  std::string tenant_salt;
};

// The key of no tokens. Scopes that differ in any field, also in where one ends and the next one
// begins, have different roots.
PrefixKey PrefixRoot(const PrefixScope& scope);

// The key of a prefix and one block of kPageTokens tokens more.
PrefixKey PrefixLink(const PrefixKey& parent, std::span<const uint32_t> block);

// The keys of a growing token list's whole pages, and the fence's fingerprints at their ends.
class PrefixChain {
 public:
  // `fingerprint` is that of no tokens.
  PrefixChain(const PrefixKey& root, Fingerprint fingerprint);

  // Takes up the pages that `tokens` fills beyond those known. The list only ever grows.
  void Extend(std::span<const uint32_t> tokens);

  uint32_t pages() const { return static_cast<uint32_t>(keys_.size()); }
  // [i]: of the first i + 1 pages.
  const std::vector<PrefixKey>& keys() const { return keys_; }
  // Of the first `pages` pages.
  Fingerprint FingerprintAt(uint32_t pages) const { return fingerprints_[pages]; }
  // Of those and `more` after them.
  Fingerprint FingerprintAfter(uint32_t pages, std::span<const uint32_t> more) const;

 private:
  PrefixKey root_;
  std::vector<PrefixKey> keys_;
  std::vector<Fingerprint> fingerprints_;  // One more than keys_.
};

// Pages that a hit may cover: never all tokens, since the logits after the last one are wanted.
uint32_t MostHitPages(uint32_t tokens);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PREFIX_PREFIX_CHAIN_H_
