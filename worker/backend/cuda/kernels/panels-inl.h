// Reading the CPU's panels (cpu/kernels/kernels.h, PanelView) on the device: the integers of a
// block of 32 inputs, the scales beside them, and single weights. Included by the kernels' sources
// alone.
#ifndef STRATA_WORKER_BACKEND_CUDA_KERNELS_PANELS_INL_H_
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_PANELS_INL_H_

#include "common/model/code_books.h"
#include "worker/backend/cuda/kernels/floats-inl.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {

// Formats that are read alike.
enum class FormatClass {
  kFloats,
  kInt8,
  kAffine8,
  kAffine4,
  kCodes,
  kSuper2,
  kSuper4,
  kSuper5,
  kSuper6
};

constexpr uint32_t kLineBytes = 64;
constexpr uint32_t kGroupBlocks = 8;  // Blocks of a super-block, and of a group of codes.

// What a kernel wants of a book of codes.
struct Codes {
  CodeScales scales = CodeScales::kExponent;
  CodeRounding rounding = CodeRounding::kNone;
  bool two = false;
  bool divides = false;
  float unit = 1;
  int8_t high[kCodes] = {};
  int8_t low[kCodes] = {};
  float values[kCodes] = {};
};

__device__ inline uint32_t LoadWord(const uint8_t* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}
__device__ inline float LoadHalf(const uint8_t* at) {
  return HalfToFloat(*reinterpret_cast<const uint16_t*>(at));
}
__device__ inline float LoadFloat(const uint8_t* at) { return *reinterpret_cast<const float*>(at); }

// Of 16 scales in a row that of lane n.
__device__ inline float LoadScale(Dtype dtype, const uint8_t* scales, uint32_t n) {
  return dtype == Dtype::kF32 ? LoadFloat(scales + 4 * n)
         : dtype == Dtype::kF16
             ? LoadHalf(scales + 2 * n)
             : Bfloat16ToFloat(*reinterpret_cast<const uint16_t*>(scales + 2 * n));
}
__device__ inline uint32_t ScaleBytes(Dtype dtype) {
  return kLanes * (dtype == Dtype::kF32 ? 4 : 2);
}

// Bits above the four low ones, and lines of 4 bits.
template <FormatClass kClass>
constexpr uint32_t kHighBits = kClass == FormatClass::kSuper2   ? 2
                               : kClass == FormatClass::kSuper5 ? 1
                               : kClass == FormatClass::kSuper6 ? 2
                                                                : 0;
template <FormatClass kClass>
constexpr uint32_t kNibbleLines = kClass == FormatClass::kSuper2 ? 0 : 4;
template <FormatClass kClass>
constexpr bool kIsSuper = kClass >= FormatClass::kSuper2;
template <FormatClass kClass>
constexpr bool kIsAffine = kClass == FormatClass::kAffine8 || kClass == FormatClass::kAffine4;
template <FormatClass kClass>
constexpr bool kIsBytes = kClass == FormatClass::kInt8 || kClass == FormatClass::kAffine8;

// Lines of a block, and bytes of what precedes the blocks of a group.
template <FormatClass kClass>
constexpr uint32_t kBlockLines = kIsBytes<kClass> ? 8 : kNibbleLines<kClass> + kHighBits<kClass>;
template <FormatClass kClass>
__device__ inline uint32_t HeadBytes(const Matrix& matrix, const Codes& codes) {
  if constexpr (kIsSuper<kClass>) {
    return cpu::kSuperHeadBytes;
  } else if constexpr (kClass == FormatClass::kCodes) {
    return codes.scales == CodeScales::kExponent ? 128
           : codes.scales == CodeScales::kSuper  ? 192
                                                 : 256;
  } else {
    return (kIsAffine<kClass> ? 2 : 1) * ScaleBytes(matrix.scale_dtype);
  }
}
// Bytes of what is of rows, before a panel's first group.
__device__ inline uint32_t RowBytes(const Codes& codes) {
  return codes.scales == CodeScales::kFloat8Halves || codes.scales == CodeScales::kFloat ? 64 : 0;
}

// Where a block is: its group's head, its lines, and its number in the group, of `group_blocks`.
struct BlockAt {
  const uint8_t* head;
  const uint8_t* lines;
  uint32_t in_group;
  uint32_t group_blocks;
};
template <FormatClass kClass>
__device__ inline BlockAt FindBlock(const Matrix& matrix, const Codes& codes, const uint8_t* panel,
                                    uint32_t block) {
  constexpr uint32_t kBytes = kBlockLines<kClass> * kLineBytes;
  uint32_t group_blocks = kGroupBlocks;
  if constexpr (!kIsSuper<kClass> && kClass != FormatClass::kCodes) {
    group_blocks = matrix.group / cpu::kQuantBlock;
  }
  if constexpr (kClass == FormatClass::kCodes) {
    panel += RowBytes(codes);
  }
  const uint32_t head_bytes = HeadBytes<kClass>(matrix, codes);
  const uint32_t in_group = block % group_blocks;
  const uint8_t* const head =
      panel + size_t{block / group_blocks} * (head_bytes + group_blocks * kBytes);
  return {head, head + head_bytes + in_group * kBytes, in_group, group_blocks};
}

// Four bytes, each the number that four bits of `low` and the higher ones point to.
__device__ inline uint32_t LookUp(const int8_t* table, uint32_t nibbles) {
  uint32_t bytes = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    bytes |= static_cast<uint32_t>(static_cast<uint8_t>(table[nibbles >> shift & 15u])) << shift;
  }
  return bytes;
}

// The four integers of word `word` of a block, for lane n, as signed bytes: less 128 where they
// have 8 bits; of codes the numbers of `table`; of kSuper2 16 times what is stored.
template <FormatClass kClass>
__device__ inline uint32_t LoadIntegers(const uint8_t* lines, uint32_t word, uint32_t n,
                                        const int8_t* table) {
  const uint8_t* const lane = lines + 4 * n;
  if constexpr (kIsBytes<kClass>) {
    return LoadWord(lane + word * kLineBytes) ^ 0x80808080u;
  }
  uint32_t integers = 0;
  if constexpr (kNibbleLines<kClass> != 0) {
    const uint32_t line = LoadWord(lane + word / 2 * kLineBytes);
    integers = (word % 2 == 0 ? line : line >> 4) & 0x0f0f0f0fu;
  }
  if constexpr (kClass == FormatClass::kCodes) {
    return LookUp(table, integers);
  }
  if constexpr (kHighBits<kClass> != 0) {
    constexpr uint32_t kMask = ((1u << kHighBits<kClass>)-1) * 0x01010101u;
    const uint32_t at = word * kHighBits<kClass>;
    const uint32_t line = LoadWord(lane + (kNibbleLines<kClass> + at / 8) * kLineBytes);
    integers |= (line >> at % 8 & kMask) << 4;
  }
  return integers;
}

// Factors of a super-block: of 32 inputs, or of halves of them.
__device__ inline float SuperFactor(const uint8_t* head, uint32_t i, uint32_t n) {
  return static_cast<float>(static_cast<int8_t>(head[64 + i * kLanes + n]));
}
struct ScaleAndBias {
  float s;
  float b;
};
// Of kSuper4 and kSuper5, of block i; and of kSuper2, of the half i.
__device__ inline ScaleAndBias SuperScales(const uint8_t* head, uint32_t i, uint32_t n) {
  const float minus =
      LoadHalf(head + 2 * (kLanes + n)) * SuperFactor(head, cpu::kSuperBlocks + i, n);
  return {LoadHalf(head + 2 * n) * SuperFactor(head, i, n), -1.0f * minus};
}
__device__ inline ScaleAndBias Super2Scales(const uint8_t* head, uint32_t i, uint32_t n) {
  const uint8_t both = head[64 + i * kLanes + n];
  const float minus = LoadHalf(head + 2 * (kLanes + n)) * static_cast<float>(both >> 4);
  return {LoadHalf(head + 2 * n) * static_cast<float>(both & 15), -1.0f * minus};
}

// The scale of 32 inputs of codes.
__device__ inline float CodeScale(const Codes& codes, const BlockAt& at, uint32_t n) {
  switch (codes.scales) {
    case CodeScales::kExponent:
      return ExponentToFloat(at.head[at.in_group * kLanes + n]);
    case CodeScales::kHalf:
      return LoadHalf(at.head + 2 * (at.in_group * kLanes + n));
    case CodeScales::kSuper:
      return LoadFloat(at.head + 4 * n) *
             static_cast<float>(static_cast<int8_t>(at.head[64 + at.in_group * kLanes + n]));
    default:
      return LoadFloat(at.head + 4 * (at.in_group / 2 * kLanes + n));
  }
}
__device__ inline float RoundCodes(CodeRounding rounding, float w) {
  return rounding == CodeRounding::kBfloat16 ? RoundToBfloat16(w)
         : rounding == CodeRounding::kHalf   ? RoundToHalf(w)
                                             : w;
}

// Weight k of lane n of a panel, as float activations meet it.
template <FormatClass kClass>
__device__ inline float LoadWeight(const Matrix& matrix, const Codes& codes, const uint8_t* panel,
                                   uint32_t k, uint32_t n) {
  if constexpr (kClass == FormatClass::kFloats) {
    const size_t at = size_t{k} * kLanes + n;
    switch (matrix.format) {
      case WeightFormat::kF32:
        return LoadFloat(panel + 4 * at);
      case WeightFormat::kF16:
        return LoadHalf(panel + 2 * at);
      default:
        return Bfloat16ToFloat(*reinterpret_cast<const uint16_t*>(panel + 2 * at));
    }
  } else {
    const uint32_t block = k / cpu::kQuantBlock;
    const uint32_t in_block = k % cpu::kQuantBlock;
    const BlockAt at = FindBlock<kClass>(matrix, codes, panel, block);
    const uint32_t word = in_block / 4;
    const uint32_t shift = in_block % 4 * 8;
    if constexpr (kClass == FormatClass::kCodes) {
      const uint32_t line = LoadWord(at.lines + 4 * n + word / 2 * kLineBytes);
      const float value = codes.values[line >> (shift + word % 2 * 4) & 15u];
      float s;
      if (codes.scales == CodeScales::kFloat8Halves) {
        const float of_row = LoadFloat(panel + 4 * n);
        const float c = Float8ToFloat(at.head[(2 * at.in_group + in_block / 16) * kLanes + n]);
        s = codes.divides ? __fdiv_rn(c, of_row) : of_row * c;
      } else {
        s = CodeScale(codes, at, n);
      }
      const CodeRounding rounding = codes.scales == CodeScales::kFloat
                                        ? static_cast<CodeRounding>(LoadWord(panel + 4 * n))
                                        : codes.rounding;
      return RoundCodes(rounding, s * value);
    } else {
      const uint32_t integers = LoadIntegers<kClass>(at.lines, word, n, nullptr);
      const int number = static_cast<int8_t>(integers >> shift);
      if constexpr (kClass == FormatClass::kSuper2) {
        const ScaleAndBias scales = Super2Scales(at.head, 2 * at.in_group + in_block / 16, n);
        return __fmaf_rn(scales.s, static_cast<float>(number / 16), scales.b);
      } else if constexpr (kClass == FormatClass::kSuper6) {
        const float c = SuperFactor(at.head, 2 * at.in_group + in_block / 16, n);
        return LoadFloat(at.head + 4 * n) * c * static_cast<float>(number - 32);
      } else if constexpr (kIsSuper<kClass>) {
        const ScaleAndBias scales = SuperScales(at.head, at.in_group, n);
        return __fmaf_rn(scales.s, static_cast<float>(number), scales.b);
      } else {
        const float s = LoadScale(matrix.scale_dtype, at.head, n);
        const float b = kIsAffine<kClass> ? LoadScale(matrix.scale_dtype,
                                                      at.head + ScaleBytes(matrix.scale_dtype), n)
                                          : 0.0f;
        const int u = kClass == FormatClass::kAffine8 ? number + 128 : number;
        return __fmaf_rn(s, static_cast<float>(u), b);
      }
    }
  }
}

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_KERNELS_PANELS_INL_H_
