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
IntegerPart SuperBlockPart(const uint8_t* block, size_t j, bool fifth) {
  IntegerPart part;
  int scale, minimum;
  SixBits(block + 4, j, &scale, &minimum);
  part.scale = HalfAt(block) * static_cast<float>(scale);
  part.bias = -(HalfAt(block + 2) * static_cast<float>(minimum));
  const uint8_t* const low = block + 16 + (fifth ? 32 : 0) + j / 2 * 32;
  for (size_t i = 0; i < kBlockPart; ++i) {
    part.u[i] = j % 2 == 0 ? low[i] & 15 : low[i] >> 4;
    if (fifth) {
      part.u[i] |= static_cast<uint8_t>((block[16 + i] >> j & 1) << 4);
    }
  }
  return part;
}

// Part `part` of a block of Q6_K.
void DecodeQ6K(const uint8_t* block, size_t part, float* out) {
  const size_t half = part / 4, quarter = part % 4;
  const uint8_t* const low = block + half * 64 + quarter % 2 * 32;
  const uint8_t* const high = block + 128 + half * 32;
  const auto* const scales = reinterpret_cast<const int8_t*>(block + 192 + half * 8 + quarter * 2);
  const float d = HalfAt(block + 208);
  for (size_t i = 0; i < kBlockPart; ++i) {
    const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    const int q = (nibble | (high[i] >> (2 * quarter) & 3) << 4) - 32;
    out[i] = d * static_cast<float>(scales[i / 16]) * static_cast<float>(q);
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
    case Dtype::kQ8_0:
    case Dtype::kQ5_0:
    case Dtype::kMXFP4:
      return {Kind::kInt8, Dtype::kF32};
    case Dtype::kQ4_0:
    case Dtype::kQ4_1:
      return {Kind::kAffine4, Dtype::kF16};
    case Dtype::kQ5_1:
      return {Kind::kAffine8, Dtype::kF16};
    case Dtype::kQ4_K:  // The product of two scales takes 17 bits.
      return {Kind::kAffine4, Dtype::kF32};
    case Dtype::kQ5_K:
      return {Kind::kAffine8, Dtype::kF32};
    default:
      return {Kind::kFloats, Dtype::kF32};
  }
}

bool IsIntegerBlocks(Dtype dtype) {
  return IsBlocks(dtype) && PanelsOf(dtype).kind != BlockPanels::Kind::kFloats;
}

IntegerPart DecodeIntegers(Dtype dtype, const uint8_t* row, size_t part) {
  const uint8_t* const block = BlockOf(dtype, row, part);
  IntegerPart out;
  if (dtype == Dtype::kQ4_K || dtype == Dtype::kQ5_K) {
    return SuperBlockPart(block, part % 8, dtype == Dtype::kQ5_K);
  }
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
      STRATA_CHECK(IsIntegerBlocks(dtype));
  }
  return out;
}

void DecodePart(Dtype dtype, const uint8_t* row, size_t part, float* out) {
  if (dtype == Dtype::kQ6_K) {
    DecodeQ6K(BlockOf(dtype, row, part), part % 8, out);
    return;
  }
  const IntegerPart integers = DecodeIntegers(dtype, row, part);
  const bool int8 = PanelsOf(dtype).kind == BlockPanels::Kind::kInt8;
  for (size_t i = 0; i < kBlockPart; ++i) {
    // The product is exact, so that rounding the sum alone is what a fused one would do.
    const int u = int8 ? integers.u[i] - 128 : integers.u[i];
    out[i] = integers.scale * static_cast<float>(u) + integers.bias;
  }
}

uint64_t BlockMatrixBytes(Dtype dtype, uint64_t outputs, uint64_t inputs) {
  const BlockPanels panels = PanelsOf(dtype);
  uint64_t part = kBlockPart * sizeof(float);
  if (panels.kind == BlockPanels::Kind::kInt8) {
    part = kBlockPart + DtypeBytes(panels.scales);
  } else if (panels.kind != BlockPanels::Kind::kFloats) {
    part = (panels.kind == BlockPanels::Kind::kAffine8 ? kBlockPart : kBlockPart / 2) +
           2 * DtypeBytes(panels.scales);
  }
  return (outputs + 15) / 16 * 16 * (inputs / kBlockPart) * part;
}

}  // namespace strata
