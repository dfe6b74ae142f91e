// How much stages on a GPU compute and copy at once: the planner counts the memory that this takes,
// and the backend allocates it.
#ifndef STRATA_COMMON_FOOTPRINT_DEVICE_LIMITS_H_
#define STRATA_COMMON_FOOTPRINT_DEVICE_LIMITS_H_

#include <cstdint>

namespace strata {

// Rows of logits that the device has at once. Where more are read, it computes one half of them
// while the other is copied to the host.
inline constexpr uint32_t kDeviceLogitRows = 64;
// With up to so many queries, of a row and a head each, spans of keys are computed apart.
inline constexpr uint32_t kDeviceQueriesBySpans = 512;
// Memory of the host through which copies go, each way: pieces, of which one is copied by the
// device while the host has the next.
inline constexpr uint64_t kPinnedPieceBytes = uint64_t{1} << 20;
inline constexpr uint32_t kPinnedPieces = 4;
// Launches of steps that are kept as graphs, of a stage.
inline constexpr uint32_t kDeviceGraphs = 16;

}  // namespace strata

#endif  // STRATA_COMMON_FOOTPRINT_DEVICE_LIMITS_H_
