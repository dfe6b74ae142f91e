#include "common/layer_weights.h"

#include <algorithm>

#include "common/digest.h"

namespace strata {
namespace {

constexpr size_t kDigestDigits = 64;
constexpr size_t kPrefixDigits = 16;

}  // namespace

uint64_t DigestPrefix(std::string_view sha256) {
  if (sha256.size() != kDigestDigits) {
    return 0;
  }
  uint64_t prefix = 0;
  for (const char c : sha256.substr(0, kPrefixDigits)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) {
      return 0;
    }
    prefix = prefix << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return prefix;
}

std::string LayerWeightsKey(std::string_view numerics_class, bool embeds, bool heads,
                            std::vector<std::string> tensors) {
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  Sha256 sha;
  sha.Update("layer 1\n");
  sha.Update(numerics_class.substr(0, numerics_class.find("/kv=")));
  sha.Update(embeds ? "\nembeds" : "\n");
  sha.Update(heads ? "\nheads" : "\n");
  for (const std::string& tensor : tensors) {
    sha.Update("\n");
    sha.Update(tensor);
  }
  return ToHex(sha.Finish());
}

}  // namespace strata
