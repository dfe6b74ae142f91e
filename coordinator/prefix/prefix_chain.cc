#include "coordinator/prefix/prefix_chain.h"

#include <array>
#include <string_view>

#include "common/check.h"
#include "common/limits.h"

namespace strata {
namespace {

// Little-endian on every machine, so that keys mean the same wherever they are compared.
template <typename T>
void Put(T value, uint8_t* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<uint8_t>(value >> (8 * i));
  }
}

void Field(Sha256* digest, std::string_view value) {
  std::array<uint8_t, 8> size;
  Put<uint64_t>(value.size(), size.data());
  digest->Update(size.data(), size.size());
  digest->Update(value);
}

}  // namespace

PrefixKey PrefixRoot(const PrefixScope& scope) {
  Sha256 digest;
  Field(&digest, "strata prefix 1");
  Field(&digest, scope.weights_digest);
  Field(&digest, scope.numerics_class);
  Field(&digest, scope.adapter_digest);
  Field(&digest, std::to_string(scope.rotary_variant));
  Field(&digest, scope.tenant_salt);
  return digest.Finish();
}

PrefixKey PrefixLink(const PrefixKey& parent, std::span<const uint32_t> block) {
  STRATA_CHECK(block.size() == kPageTokens);
  std::array<uint8_t, sizeof(PrefixKey) + kPageTokens * sizeof(uint32_t)> bytes;
  std::copy(parent.begin(), parent.end(), bytes.begin());
  for (size_t i = 0; i < block.size(); ++i) {
    Put(block[i], bytes.data() + sizeof(PrefixKey) + i * sizeof(uint32_t));
  }
  Sha256 digest;
  digest.Update(bytes.data(), bytes.size());
  return digest.Finish();
}

PrefixChain::PrefixChain(const PrefixKey& root, Fingerprint fingerprint)
    : root_(root), fingerprints_{fingerprint} {}

void PrefixChain::Extend(std::span<const uint32_t> tokens) {
  while ((keys_.size() + 1) * kPageTokens <= tokens.size()) {
    const auto block = tokens.subspan(keys_.size() * kPageTokens, kPageTokens);
    keys_.push_back(PrefixLink(keys_.empty() ? root_ : keys_.back(), block));
    fingerprints_.push_back(FingerprintAfter(pages() - 1, block));
  }
}

Fingerprint PrefixChain::FingerprintAfter(uint32_t pages, std::span<const uint32_t> more) const {
  Fingerprint fingerprint = fingerprints_[pages];
  for (const uint32_t id : more) {
    fingerprint = FingerprintLink(fingerprint, id);
  }
  return fingerprint;
}

uint32_t MostHitPages(uint32_t tokens) { return tokens == 0 ? 0 : (tokens - 1) / kPageTokens; }

}  // namespace strata
