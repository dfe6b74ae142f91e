// Matrices of random blocks.
#ifndef STRATA_TESTS_WORKER_BACKEND_RANDOM_BLOCKS_H_
#define STRATA_TESTS_WORKER_BACKEND_RANDOM_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/model/block_formats.h"
#include "common/random.h"

namespace strata::cpu {

// Where a block has floats of 16 bits, or of 32, which are to be finite.
struct FloatsOfBlock {
  std::vector<size_t> halves, floats;
};
inline FloatsOfBlock ScalesOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kQ2_K:
      return {{80, 82}, {}};
    case Dtype::kQ3_K:
      return {{108}, {}};
    case Dtype::kQ6_K:
      return {{208}, {}};
    case Dtype::kQ4_1:
    case Dtype::kQ5_1:
    case Dtype::kQ4_K:
    case Dtype::kQ5_K:
      return {{0, 2}, {}};
    case Dtype::kNF4:
    case Dtype::kFP4:
      return {{}, {0}};
    case Dtype::kMXFP4:
    case Dtype::kNVFP4:
    case Dtype::kNVFP4BF16:
      return {};
    default:
      return {{0}, {}};
  }
}

inline bool IsNvfp4(Dtype dtype) { return dtype == Dtype::kNVFP4 || dtype == Dtype::kNVFP4BF16; }
// What of a row comes before its blocks.
inline size_t RowHead(Dtype dtype, size_t inputs) {
  return BlockRowBytes(dtype, inputs) - inputs / BlockElements(dtype) * BlockBytes(dtype);
}

// Rows of random blocks whose scales are finite, behind a byte that is not theirs. Where rows say
// how they are rounded, it is by the seed.
inline std::string RandomRows(Dtype dtype, size_t rows, size_t inputs, uint64_t seed) {
  const size_t row_bytes = BlockRowBytes(dtype, inputs);
  std::string bytes(1 + rows * row_bytes, 'x');
  for (size_t i = 1; i < bytes.size(); ++i) {
    bytes[i] =
        static_cast<char>(Philox(seed, static_cast<uint32_t>(dtype), static_cast<uint32_t>(i)));
    // No exponent, nor an 8-bit float, that means no number; codes do not mind.
    if (dtype == Dtype::kMXFP4 || IsNvfp4(dtype)) {
      bytes[i] = static_cast<char>(bytes[i] & 0xfb);
    }
  }
  const FloatsOfBlock scales = ScalesOf(dtype);
  const auto cut = [&](size_t at) { bytes[at] = static_cast<char>(bytes[at] & 0xbf); };
  const size_t head = RowHead(dtype, inputs);
  for (size_t row = 1; row < bytes.size(); row += row_bytes) {
    if (IsNvfp4(dtype)) {
      cut(row + 3);                      // The whole row's.
      if (dtype == Dtype::kNVFP4BF16) {  // Divides, and so is between 2^-1 and 2^1.
        bytes[row + 3] = static_cast<char>((bytes[row + 3] & 0x80) | 0x3f);
      }
    } else if (head != 0) {
      const auto rounding = static_cast<CodeRounding>(seed % 3);
      std::memcpy(bytes.data() + row, &rounding, sizeof(rounding));
    }
    for (size_t at = row + head; at < row + row_bytes; at += BlockBytes(dtype)) {
      for (const size_t half : scales.halves) {
        cut(at + half + 1);  // Below 2.
      }
      for (const size_t word : scales.floats) {
        cut(at + word + 3);
      }
    }
  }
  return bytes;
}

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_RANDOM_BLOCKS_H_
