#include "common/model/block_formats.h"

#include <cstring>

#include "common/check.h"
#include "common/model/half.h"
#include "common/model/narrow_floats.h"

namespace strata {
namespace {

// 32 nibbles: the low ones first.
void Nibbles(const uint8_t* from, uint8_t* u) {
  for (size_t i = 0; i < 16; ++i) {
    u[i] = from[i] & 15;
    u[i + 16] = from[i] >> 4;
  }
}

float FloatAt(const uint8_t* from) {
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
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

// Four words of two bits each, and of what stands beside them: those of 32 inputs in turn.
void DecodeTwoBits(const uint8_t* from, size_t j, uint8_t* u) {
  const uint8_t* const low = from + j / 4 * 32;
  for (size_t i = 0; i < kBlockPart; ++i) {
    u[i] = low[i] >> (2 * (j % 4)) & 3;
  }
}

void DecodeQ2K(const uint8_t* block, IntegerSuperBlock* out) {
  out->scale = HalfAt(block + 80);
  out->minimum = HalfAt(block + 82);
  for (size_t i = 0; i < std::size(out->c); ++i) {
    out->c[i] = static_cast<int8_t>(block[i] & 15);
    out->m[i] = static_cast<int8_t>(block[i] >> 4);
  }
  for (size_t j = 0; j < kSuperBlock / kBlockPart; ++j) {
    DecodeTwoBits(block + 16, j, out->u + j * kBlockPart);
  }
}

// Third bits, two bits, and scales of six bits less 32: four in the halves of 8 bytes, two more in
// the quarters of 4.
void DecodeQ3K(const uint8_t* block, IntegerSuperBlock* out) {
  out->scale = HalfAt(block + 108);
  const uint8_t* const scales = block + 96;
  for (size_t i = 0; i < std::size(out->c); ++i) {
    const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    const int high = scales[8 + i % 4] >> (2 * (i / 4)) & 3;
    out->c[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  for (size_t j = 0; j < kSuperBlock / kBlockPart; ++j) {
    uint8_t* const u = out->u + j * kBlockPart;
    DecodeTwoBits(block + 32, j, u);
    for (size_t i = 0; i < kBlockPart; ++i) {
      // Less 4 where the third bit is 0; and 32 more, as Q6_K has it.
      u[i] = static_cast<uint8_t>(u[i] + 28 + (block[i] >> j & 1) * 4);
    }
  }
}

// Behind what is of the whole row.
size_t RowHeadBytes(Dtype dtype) {
  return PanelsOf(dtype).kind == BlockPanels::Kind::kCodes ? CodeRowBytes(BookOf(dtype).scales) / 16
                                                           : 0;
}

const uint8_t* BlockOf(Dtype dtype, const uint8_t* row, size_t part) {
  return row + RowHeadBytes(dtype) + part / (BlockElements(dtype) / kBlockPart) * BlockBytes(dtype);
}

uint64_t SuperBits(BlockPanels::Kind kind) {
  using Kind = BlockPanels::Kind;
  return kind == Kind::kSuper2 ? 2 : kind == Kind::kSuper4 ? 4 : kind == Kind::kSuper5 ? 5 : 6;
}

}  // namespace

bool IsBlocks(Dtype dtype) { return dtype >= Dtype::kQ4_0; }

size_t BlockElements(Dtype dtype) {
  switch (dtype) {
    case Dtype::kQ2_K:
    case Dtype::kQ3_K:
    case Dtype::kQ4_K:
    case Dtype::kQ5_K:
    case Dtype::kQ6_K:
    case Dtype::kIQ4_XS:
      return kSuperBlock;
    case Dtype::kNF4:
    case Dtype::kFP4:
      return 64;
    default:
      return kBlockPart;
  }
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
    case Dtype::kQ2_K:
      return 84;
    case Dtype::kQ3_K:
      return 110;
    case Dtype::kIQ4_NL:
    case Dtype::kNVFP4:
    case Dtype::kNVFP4BF16:
      return 18;
    case Dtype::kIQ4_XS:
      return 136;
    case Dtype::kNF4:
    case Dtype::kFP4:
      return 36;
    default:
      return 0;
  }
}

uint64_t BlockRowBytes(Dtype dtype, uint64_t inputs) {
  return RowHeadBytes(dtype) + inputs / BlockElements(dtype) * BlockBytes(dtype);
}

std::optional<uint64_t> TensorBytes(Dtype dtype, std::span<const uint64_t> shape) {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(elements, dimension, &elements)) {
      return std::nullopt;
    }
  }
  // Elements of less than a byte have to fill bytes.
  const bool part = DtypeBits(dtype) % 8 != 0;
  uint64_t unit = part ? DtypeBits(dtype) : DtypeBytes(dtype);
  uint64_t heads = 0;
  if (IsBlocks(dtype)) {
    if (shape.empty() || shape.back() % BlockElements(dtype) != 0) {
      return std::nullopt;
    }
    heads = shape.back() == 0 ? 0 : elements / shape.back() * RowHeadBytes(dtype);
    elements /= BlockElements(dtype);
    unit = BlockBytes(dtype);
  }
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, unit, &bytes) ||
      __builtin_add_overflow(bytes, heads, &bytes) || (part && bytes % 8 != 0)) {
    return std::nullopt;
  }
  return part ? bytes / 8 : bytes;
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
    case Dtype::kQ2_K:
      return {Kind::kSuper2, Dtype::kF16};
    case Dtype::kQ3_K:
    case Dtype::kQ6_K:
      return {Kind::kSuper6, Dtype::kF32};
    case Dtype::kMXFP4:
    case Dtype::kIQ4_NL:
    case Dtype::kIQ4_XS:
    case Dtype::kNVFP4:
    case Dtype::kNVFP4BF16:
    case Dtype::kNF4:
    case Dtype::kFP4:
      return {Kind::kCodes, Dtype::kF32};
    default:
      STRATA_CHECK(IsBlocks(dtype));
      return {Kind::kInt8, Dtype::kF32};
  }
}

uint32_t KeptBits(Dtype dtype) {
  switch (PanelsOf(dtype).kind) {
    case BlockPanels::Kind::kSuper2:
      return 2;
    case BlockPanels::Kind::kAffine4:
    case BlockPanels::Kind::kCodes:
    case BlockPanels::Kind::kSuper4:
      return 4;
    case BlockPanels::Kind::kSuper5:
      return 5;
    case BlockPanels::Kind::kSuper6:
      return 6;
    default:
      return 8;
  }
}

// Scales are less than one bit of each weight.
uint32_t StoredBits(Dtype dtype) {
  return static_cast<uint32_t>(BlockBytes(dtype) * 8 / BlockElements(dtype));
}

IntegerPart DecodeIntegers(Dtype dtype, const uint8_t* row, size_t part) {
  const uint8_t* const block = BlockOf(dtype, row, part);
  IntegerPart out;
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
  STRATA_CHECK(PanelsOf(dtype).super());
  IntegerSuperBlock out;
  const uint8_t* const from = row + block * BlockBytes(dtype);
  switch (dtype) {
    case Dtype::kQ2_K:
      DecodeQ2K(from, &out);
      break;
    case Dtype::kQ3_K:
      DecodeQ3K(from, &out);
      break;
    case Dtype::kQ6_K:
      DecodeQ6K(from, &out);
      break;
    default:
      DecodeQ45K(from, dtype == Dtype::kQ5_K, &out);
  }
  return out;
}

const CodeBook& BookOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kNVFP4:
      return kNvfp4Book;
    case Dtype::kNVFP4BF16:
      return kNvfp4Bf16Book;
    case Dtype::kIQ4_NL:
      return kIq4NlBook;
    case Dtype::kIQ4_XS:
      return kIq4XsBook;
    case Dtype::kNF4:
      return kNf4Book;
    case Dtype::kFP4:
      return kFp4Book;
    default:
      STRATA_CHECK(dtype == Dtype::kMXFP4);
      return kMxfp4Book;
  }
}

const uint8_t* CodeScalesAt(Dtype dtype, const uint8_t* row, size_t part) {
  return BlockOf(dtype, row, part);
}

SuperCodeScale SuperCodeScaleAt(const uint8_t* row, size_t part) {
  // A float16; two bits of each part; four bits of each.
  const uint8_t* const block = BlockOf(Dtype::kIQ4_XS, row, part);
  const size_t j = part % (kSuperBlock / kBlockPart);
  const int low = block[4 + j / 2] >> (j % 2 * 4) & 15;
  const int high = (block[2 + j / 4] >> (j % 4 * 2)) & 3;
  return {HalfAt(block), static_cast<int8_t>((low | high << 4) - 32)};
}

CodeRounding RowRounding(const uint8_t* row) {
  CodeRounding rounding;
  std::memcpy(&rounding, row, sizeof(rounding));
  return rounding;
}

CodePart DecodeCodes(Dtype dtype, const uint8_t* row, size_t part) {
  const uint8_t* const block = BlockOf(dtype, row, part);
  const size_t in_block = part % (BlockElements(dtype) / kBlockPart);
  const CodeBook& book = BookOf(dtype);
  CodePart out;
  out.rounding = book.rounding;
  size_t head = 0;  // Bytes before the codes.
  switch (book.scales) {
    case CodeScales::kExponent:
      out.scales[0] = ExponentToF32(block[0]);
      head = 1;
      break;
    case CodeScales::kFloat8Halves:
      out.row = FloatAt(row);
      out.scales[0] = Float8ToF32(block[0]);
      out.scales[1] = Float8ToF32(block[1]);
      head = 2;
      break;
    case CodeScales::kHalf:
      out.scales[0] = HalfAt(block);
      head = sizeof(uint16_t);
      break;
    case CodeScales::kFloat:
      out.rounding = RowRounding(row);
      out.scales[0] = FloatAt(block);
      head = sizeof(float);
      break;
    case CodeScales::kSuper: {
      const SuperCodeScale scale = SuperCodeScaleAt(row, part);
      out.scales[0] = scale.scale * static_cast<float>(scale.factor);
      head = 8;
      break;
    }
  }
  if (book.scales != CodeScales::kFloat8Halves) {
    out.scales[1] = out.scales[0];
  }
  Nibbles(block + head + in_block * kBlockPart / 2, out.u);
  return out;
}

float WeightOf(const CodeBook& book, const CodePart& part, size_t i) {
  const float c = part.scales[i / 16];
  const float scale = book.divides ? c / part.row : part.row * c;
  return RoundTo(part.rounding, scale * book.values[part.u[i]]);
}

void PutCodes(const uint8_t* codes, uint8_t* to) {
  for (size_t i = 0; i < kBlockPart / 2; ++i) {
    to[i] = static_cast<uint8_t>(codes[i] | codes[i + kBlockPart / 2] << 4);
  }
}

void DecodePart(Dtype dtype, const uint8_t* row, size_t part, float* out) {
  // Products of scales and integers are exact, so that rounding the sum alone is what a fused
  // multiplication would do.
  if (PanelsOf(dtype).kind == BlockPanels::Kind::kCodes) {
    const CodePart codes = DecodeCodes(dtype, row, part);
    const CodeBook& book = BookOf(dtype);
    for (size_t i = 0; i < kBlockPart; ++i) {
      out[i] = WeightOf(book, codes, i);
    }
    return;
  }
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
    const size_t half = 2 * j + i / 16;
    const auto c = static_cast<float>(block.c[half]);
    if (PanelsOf(dtype).kind == BlockPanels::Kind::kSuper6) {
      out[i] = block.scale * c * static_cast<float>(u - 32);
    } else if (dtype == Dtype::kQ2_K) {
      out[i] = block.scale * c * static_cast<float>(u) -
               block.minimum * static_cast<float>(block.m[half]);
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
    case Kind::kCodes: {
      // By panels: what is of whole rows, scales by groups, codes.
      const CodeScales scales = BookOf(dtype).scales;
      const uint64_t groups = (inputs + kCodeGroup - 1) / kCodeGroup;
      return (outputs + 15) / 16 *
             (CodeRowBytes(scales) + groups * CodeHeadBytes(scales) + inputs * 16 / 2);
    }
    case Kind::kSuper2:
    case Kind::kSuper4:
    case Kind::kSuper5:
    case Kind::kSuper6:
      elements = kSuperBlock;
      // Two scales or one, sixteen numbers that multiply them, integers.
      bytes = (panels.kind == Kind::kSuper6 ? 1 : 2) * scale + 16 +
              kSuperBlock * SuperBits(panels.kind) / 8;
  }
  return (outputs + 15) / 16 * 16 * (inputs / elements) * bytes;
}

}  // namespace strata
