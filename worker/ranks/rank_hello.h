// What a connection between ranks of several workers begins with. Little-endian. Pure.
#ifndef STRATA_WORKER_RANKS_RANK_HELLO_H_
#define STRATA_WORKER_RANKS_RANK_HELLO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace strata {

// Why a connection is not a rank's: UNAUTHENTICATED or INVALID_ARGUMENT.
inline constexpr char kRankHelloRefused[] = "RANK_HELLO";

inline constexpr size_t kRankSecretBytes = 32;
// The leader draws one for an epoch; who has it is a rank of it.
using RankSecret = std::array<uint8_t, kRankSecretBytes>;

enum class RankConnection : uint32_t {
  kGathers = 1,
  kCalls = 2,  // From the leader.
};

inline constexpr size_t kRankHelloBytes = 64;

struct RankHello {
  RankSecret secret = {};
  uint64_t epoch = 0;
  uint32_t from = 0;  // Ranks.
  uint32_t to = 0;
  RankConnection use = RankConnection::kGathers;

  bool operator==(const RankHello&) const = default;
};

void EncodeRankHello(const RankHello& hello, std::span<uint8_t, kRankHelloBytes> out);
// INVALID_ARGUMENT (kRankHelloRefused): no hello of this version, or damaged.
absl::StatusOr<RankHello> DecodeRankHello(std::span<const uint8_t, kRankHelloBytes> bytes);

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_RANK_HELLO_H_
