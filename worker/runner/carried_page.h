// The checksum of a page of KV that goes from one stage to another.
#ifndef STRATA_WORKER_RUNNER_CARRIED_PAGE_H_
#define STRATA_WORKER_RUNNER_CARRIED_PAGE_H_

#include <array>
#include <cstdint>

#include "common/digest.h"
#include "strata/v1/kv.pb.h"
#include "worker/runner/page_layers.h"

namespace strata {

// Of its bytes and of all that is said of them.
inline uint32_t CarriedPageCrc(const LayerRange& layers, const v1::CarriedPage& page) {
  std::array<uint8_t, 48> said{};
  size_t at = 0;
  for (const uint64_t value :
       {uint64_t{layers.first}, uint64_t{layers.last}, uint64_t{page.group()},
        uint64_t{page.page()}, page.fingerprint(), page.offset()}) {
    for (int byte = 0; byte < 8; ++byte) {
      said[at++] = static_cast<uint8_t>(value >> (8 * byte));
    }
  }
  return Crc32c(Crc32c(0, said.data(), said.size()), page.data().data(), page.data().size());
}

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_CARRIED_PAGE_H_
