// Bytes to and from one other rank.
#ifndef STRATA_WORKER_COLLECTIVE_RANK_CHANNEL_H_
#define STRATA_WORKER_COLLECTIVE_RANK_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace strata {

// In order, both ways at once. Nothing here waits. One thread at a time.
class RankChannel {
 public:
  virtual ~RankChannel() = default;
  // How many of the first bytes were taken or filled in; 0: none now. UNAVAILABLE once the other
  // rank is gone; what it sent before comes first.
  virtual absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) = 0;
  virtual absl::StatusOr<size_t> Receive(std::span<uint8_t> out) = 0;
  // Nothing more is sent: the other rank's Receive says so behind what was.
  virtual void EndSending() = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_COLLECTIVE_RANK_CHANNEL_H_
