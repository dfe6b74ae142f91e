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
inline constexpr uint64_t kPinnedBytes = 2 * kPinnedPieces * kPinnedPieceBytes;  // Of a device.
// Launches of steps that are kept as graphs, of a stage.
inline constexpr uint32_t kDeviceGraphs = 16;

// What each of several devices has for what the ranks of a stage gather. Rows are packed there:
inline constexpr uint64_t kGatherStagingBytes = uint64_t{16} << 20;
// Channels that NCCL may have between ranks (ncclConfig_t::maxCTAs), and what one has of a device:
// a buffer for each of its protocols, by the defaults of NCCL's src/init.cc. Simple 4 MiB (1 <<
// 22), LL 512 KiB (8 lines of 16 bytes for 512 threads, 8 steps), LL128 4.7 MiB (120 words of 8
// bytes for 640 threads, 8 steps). NCCL_BUFFSIZE and its like in the environment change them.
inline constexpr uint32_t kNcclChannels = 8;
inline constexpr uint64_t kNcclChannelBytes =
    (uint64_t{1} << 22) + uint64_t{8} * 16 * 512 * 8 + uint64_t{120} * 8 * 640 * 8;
inline constexpr uint64_t kGatherBytes = kGatherStagingBytes + kNcclChannels * kNcclChannelBytes;

}  // namespace strata

#endif  // STRATA_COMMON_FOOTPRINT_DEVICE_LIMITS_H_
