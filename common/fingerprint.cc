#include "common/fingerprint.h"

#include <cstring>
#include <string>

#include "common/digest.h"

namespace strata {
namespace {

uint64_t FirstBytes(const Sha256Bytes& digest) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) {
    value = value << 8 | digest[static_cast<size_t>(i)];
  }
  return value;
}

}  // namespace

Fingerprint FingerprintRoot(uint64_t deployment, std::string_view weights_digest,
                            std::string_view numerics_class, std::string_view adapter_digest,
                            uint32_t rotary_variant) {
  Sha256 sha;
  // Each part with its length, so that no two lists of parts read alike.
  auto add = [&sha](std::string_view part) {
    sha.Update(std::to_string(part.size()) + ":");
    sha.Update(part);
  };
  add(std::to_string(deployment));
  add(weights_digest);
  add(numerics_class);
  add(adapter_digest);
  add(std::to_string(rotary_variant));
  return FirstBytes(sha.Finish());
}

uint64_t EmbeddingLink(std::string_view values) {
  Sha256 sha;
  sha.Update(values);
  return FirstBytes(sha.Finish()) | kEmbeddingLinkBit;
}

}  // namespace strata
