// 64 bits that stand for a row of float32 values: two computations of it are compared by them.
#ifndef STRATA_COMMON_MODEL_ROW_DIGEST_H_
#define STRATA_COMMON_MODEL_ROW_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata {

// Tokens of a sequence that `strata model check` compares.
inline constexpr uint32_t kMaxCheckTokens = 256;

// The first 64 bits, as the first 16 hex digits are read, of the SHA-256 of the values as they lie
// in memory, little-endian. So it differs with every bit: -0 from 0, and one NaN from another.
uint64_t RowDigest(std::span<const float> row);

// Of each of the rows, which have `columns` values.
std::vector<uint64_t> RowDigests(std::span<const float> rows, size_t columns);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_ROW_DIGEST_H_
