// What one rank sends another: a head of fixed size, then bytes. Little-endian. Pure.
#ifndef STRATA_WORKER_COLLECTIVE_RANK_FRAME_H_
#define STRATA_WORKER_COLLECTIVE_RANK_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"

namespace strata {

enum class RankFrameKind : uint32_t {
  kGather = 1,
  kBarrier = 2,
  kAbort = 3,
  kGatherToFirst = 4,  // Only what goes to rank 0 has bytes.
};

inline constexpr size_t kRankFrameHeadBytes = 64;
// Behind one head. Far more than a step gathers: a rank takes memory for what it expects itself,
// and refuses a head that says another number.
inline constexpr uint64_t kMaxRankFrameBytes = uint64_t{1} << 36;
// Of an abort, which is text.
inline constexpr uint64_t kMaxAbortBytes = 1024;

struct RankFrameHead {
  RankFrameKind kind = RankFrameKind::kBarrier;
  uint32_t rank = 0;  // Who sends it.
  CollectivePoint point;
  uint64_t rows = 0;   // Of an abort: the rank that is its cause, and 1; 0: not known.
  uint32_t shape = 0;  // ShapeOf the gathered columns.
  uint64_t bytes = 0;  // That follow.
  uint32_t crc = 0;    // CRC-32C of them.

  bool operator==(const RankFrameHead&) const = default;
};

// Differs, but for one in 2^32, where ranks mean other columns.
uint32_t ShapeOf(std::span<const ByteColumns> columns);

void EncodeRankFrameHead(const RankFrameHead& head, std::span<uint8_t, kRankFrameHeadBytes> out);
// DATA_LOSS (kRankFrame): no head of this version, damaged, of an unknown kind, or with more bytes
// than its kind may have.
absl::StatusOr<RankFrameHead> DecodeRankFrameHead(
    std::span<const uint8_t, kRankFrameHeadBytes> bytes);

}  // namespace strata

#endif  // STRATA_WORKER_COLLECTIVE_RANK_FRAME_H_
