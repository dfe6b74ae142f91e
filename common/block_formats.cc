#include "common/block_formats.h"

#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/half.h"

namespace strata {
namespace {

// 32 nibbles: the low ones first.
void Nibbles(const uint8_t* from, uint8_t* u) {
  for (size_t i = 0; i < 16; ++i) {
    u[i] = from[i] & 15;
    u[i + 16] = from[i] >> 4;
  }
}

// Twice the values of 4-bit floats (a sign, two bits of exponent, one of mantissa), plus 128.
constexpr uint8_t kFloats4[] = {128, 129, 130, 131, 132, 134, 136, 140,
                                128, 127, 126, 125, 124, 122, 120, 116};

// 2^(bits - 128): half of what eight bits of exponent mean; the last of them means no number.
float HalfExponentAt(uint8_t bits) {
  if (bits == 255) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::bit_cast<float>(bits < 2 ? 0x00200000u << bits : (uint32_t{bits} - 1) << 23);
}

// The fifth bits, in one word.
void FifthBits(const uint8_t* from, uint8_t* u) {
  uint32_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  for (size_t i = 0; i < 32; ++i) {
    u[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
  }
}

// Scale and minimum of sub-block j of Q4_K and Q5_K: six bits each, in twelve bytes.
void SixBits(const uint8_t* s, size_t j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *minimum = s[j + 4] >> 4 | s[j] >> 6 << 4;
  }
}

// Q4_K, and Q5_K, which has 32 bytes of fifth bits more.
void DecodeQ45K(const uint8_t* block, bool fifth, IntegerSuperBlock* out) {
  out->scale = HalfAt(block);
  out->minimum = HalfAt(block + 2);
  for (size_t j = 0; j < kSuperBlock / kBlockPart; ++j) {
    int scale, minimum;
    SixBits(block + 4, j, &scale, &minimum);
    out->c[j] = static_cast<int8_t>(scale);
    out->m[j] = static_cast<int8_t>(minimum);
    const uint8_t* const low = block + 16 + (fifth ? 32 : 0) + j / 2 * 32;
    uint8_t* const u = out->u + j * kBlockPart;
    for (size_t i = 0; i < kBlockPart; ++i) {
      u[i] = j % 2 == 0 ? low[i] & 15 : low[i] >> 4;
      if (fifth) {
        u[i] |= static_cast<uint8_t>((block[16 + i] >> j & 1) << 4);
      }
    }
  }
}

void DecodeQ6K(const uint8_t* block, IntegerSuperBlock* out) {
  out->scale = HalfAt(block + 208);
  std::memcpy(out->c, block + 192, sizeof(out->c));
  for (size_t j = 0; j < kSuperBlock / kBlockPart; ++j) {
    const size_t half = j / 4, quarter = j % 4;
    const uint8_t* const low = block + half * 64 + quarter % 2 * 32;
    const uint8_t* const high = block + 128 + half * 32;
    for (size_t i = 0; i < kBlockPart; ++i) {
      const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
      out->u[j * kBlockPart + i] =
          static_cast<uint8_t>(nibble | (high[i] >> (2 * quarter) & 3) << 4);
    }
  }
}

const uint8_t* BlockOf(Dtype dtype, const uint8_t* row, size_t part) {
  return row + part / (BlockElements(dtype) / kBlockPart) * BlockBytes(dtype);
}

}  // namespace

bool IsBlocks(Dtype dtype) { return dtype >= Dtype::kQ4_0; }

size_t BlockElements(Dtype dtype) {
  return dtype == Dtype::kQ4_K || dtype == Dtype::kQ5_K || dtype == Dtype::kQ6_K ? 256 : 32;
}

size_t BlockBytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kQ4_0:
      return 18;
    case Dtype::kQ4_1:
      return 20;
    case Dtype::kQ5_0:
      return 22;
    case Dtype::kQ5_1:
      return 24;
    case Dtype::kQ8_0:
      return 34;
    case Dtype::kQ4_K:
      return 144;
    case Dtype::kQ5_K:
      return 176;
    case Dtype::kQ6_K:
      return 210;
    case Dtype::kMXFP4:
      return 17;
    default:
      return 0;
  }
}

std::optional<uint64_t> TensorBytes(Dtype dtype, std::span<const uint64_t> shape) {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(elements, dimension, &elements)) {
      return std::nullopt;
    }
  }
  uint64_t unit = DtypeBytes(dtype);
  if (IsBlocks(dtype)) {
    if (shape.empty() || shape.back() % BlockElements(dtype) != 0) {
      return std::nullopt;
    }
    elements /= BlockElements(dtype);
    unit = BlockBytes(dtype);
  }
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, unit, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

BlockPanels PanelsOf(Dtype dtype) {
  using Kind = BlockPanels::Kind;
  switch (dtype) {
    case Dtype::kQ4_0:
    case Dtype::kQ4_1:
      return {Kind::kAffine4, Dtype::kF16};
    case Dtype::kQ5_1:
      return {Kind::kAffine8, Dtype::kF16};
    case Dtype::kQ4_K:
      return {Kind::kSuper4, Dtype::kF16};
    case Dtype::kQ5_K:
      return {Kind::kSuper5, Dtype::kF16};
    case Dtype::kQ6_K:
      return {Kind::kSuper6, Dtype::kF32};
    default:
      STRATA_CHECK(IsBlocks(dtype));
      return {Kind::kInt8, Dtype::kF32};
  }
}

IntegerPart DecodeIntegers(Dtype dtype, const uint8_t* row, size_t part) {
  const uint8_t* const block = BlockOf(dtype, row, part);
  IntegerPart out;
  if (dtype == Dtype::kMXFP4) {
    out.scale = HalfExponentAt(block[0]);
    Nibbles(block + 1, out.u);
    for (uint8_t& u : out.u) {
      u = kFloats4[u];
    }
    return out;
  }
  out.scale = HalfAt(block);
  switch (dtype) {
    case Dtype::kQ8_0:
      for (size_t i = 0; i < kBlockPart; ++i) {
        out.u[i] = static_cast<uint8_t>(block[2 + i] ^ 0x80);
      }
      break;
    case Dtype::kQ4_0:
      Nibbles(block + 2, out.u);
      out.bias = -8 * out.scale;
      break;
    case Dtype::kQ4_1:
      Nibbles(block + 4, out.u);
      out.bias = HalfAt(block + 2);
      break;
    case Dtype::kQ5_0:
      Nibbles(block + 6, out.u);
      FifthBits(block + 2, out.u);
      for (uint8_t& u : out.u) {
        u = static_cast<uint8_t>(u + 112);
      }
      break;
    case Dtype::kQ5_1:
      Nibbles(block + 8, out.u);
      FifthBits(block + 4, out.u);
      out.bias = HalfAt(block + 2);
      break;
    default:
      STRATA_CHECK(false);
  }
  return out;
}

IntegerSuperBlock DecodeSuperBlock(Dtype dtype, const uint8_t* row, size_t block) {
  STRATA_CHECK(BlockElements(dtype) == kSuperBlock);
  IntegerSuperBlock out;
  const uint8_t* const from = row + block * BlockBytes(dtype);
  if (dtype == Dtype::kQ6_K) {
    DecodeQ6K(from, &out);
  } else {
    DecodeQ45K(from, dtype == Dtype::kQ5_K, &out);
  }
  return out;
}

void DecodePart(Dtype dtype, const uint8_t* row, size_t part, float* out) {
  // Products of scales and integers are exact, so that rounding the sum alone is what a fused
  // multiplication would do.
  if (!PanelsOf(dtype).super()) {
    const IntegerPart integers = DecodeIntegers(dtype, row, part);
    const bool int8 = PanelsOf(dtype).kind == BlockPanels::Kind::kInt8;
    for (size_t i = 0; i < kBlockPart; ++i) {
      const int u = int8 ? integers.u[i] - 128 : integers.u[i];
      out[i] = integers.scale * static_cast<float>(u) + integers.bias;
    }
    return;
  }
  const IntegerSuperBlock block = DecodeSuperBlock(dtype, row, part / 8);
  const size_t j = part % 8;
  for (size_t i = 0; i < kBlockPart; ++i) {
    const int u = block.u[j * kBlockPart + i];
    if (dtype == Dtype::kQ6_K) {
      const size_t half = 2 * j + i / 16;
      const auto c = static_cast<float>(block.c[half]);
      out[i] = block.scale * c * static_cast<float>(u - 32);
    } else {
      out[i] = block.scale * static_cast<float>(block.c[j]) * static_cast<float>(u) -
               block.minimum * static_cast<float>(block.m[j]);
    }
  }
}

uint64_t BlockMatrixBytes(Dtype dtype, uint64_t outputs, uint64_t inputs) {
  const BlockPanels panels = PanelsOf(dtype);
  using Kind = BlockPanels::Kind;
  const uint64_t scale = DtypeBytes(panels.scales);
  uint64_t elements = kBlockPart;
  uint64_t bytes = 0;  // Of so many elements.
  switch (panels.kind) {
    case Kind::kInt8:
      bytes = kBlockPart + scale;
      break;
    case Kind::kAffine8:
      bytes = kBlockPart + 2 * scale;
      break;
    case Kind::kAffine4:
      bytes = kBlockPart / 2 + 2 * scale;
      break;
    default:
      elements = kSuperBlock;
      const uint64_t bits = dtype == Dtype::kQ4_K ? 4 : dtype == Dtype::kQ5_K ? 5 : 6;
      // Two scales or one, sixteen numbers that multiply them, integers.
      bytes = (bits == 6 ? 1 : 2) * scale + 16 + kSuperBlock * bits / 8;
  }
  return (outputs + 15) / 16 * 16 * (inputs / elements) * bytes;
}

}  // namespace strata
