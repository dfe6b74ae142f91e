// Names by which workers say what of a layer's weights their caches have, and the coordinator
// understands it.
#ifndef STRATA_COMMON_LAYER_WEIGHTS_H_
#define STRATA_COMMON_LAYER_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The first 64 bits of a SHA-256 in hex, big-endian; 0 if it is none.
uint64_t DigestPrefix(std::string_view sha256);

// What a layer's packed weights depend on that any node can tell, as a SHA-256 in hex: how they are
// computed with (the numerics class but for its KV), whether embedding and head are among them, and
// the digests of the tensors, in any order. How a node packs them is its own affair.
std::string LayerWeightsKey(std::string_view numerics_class, bool embeds, bool heads,
                            std::vector<std::string> tensors);

}  // namespace strata

#endif  // STRATA_COMMON_LAYER_WEIGHTS_H_
