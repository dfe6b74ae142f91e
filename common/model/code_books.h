// Formats of 4-bit codes: each code points into a code book of 16 values, and a weight is its value
// times one or two scales, which some formats' libraries then round to a shorter float.
#ifndef STRATA_COMMON_MODEL_CODE_BOOKS_H_
#define STRATA_COMMON_MODEL_CODE_BOOKS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace strata {

inline constexpr size_t kCodes = 16;

// What the values of a book are multiplied by.
enum class CodeScales : uint8_t {
  kExponent,      // A power of two for 32 inputs: a byte b for 2^(b - 127), of 255 for no number.
  kFloat8Halves,  // An 8-bit float (E4M3) for 16 inputs, times a float32 of the row or over it.
  kHalf,          // A float16 for 32 inputs.
  kFloat,         // A float32 for 64 inputs.
  kSuper,         // A whole number of six bits for 32 inputs, and a float32 for 256.
};

// What weights are rounded to: those that float activations are multiplied with, and those of which
// single rows are read. Products of integers are of codes that are not rounded.
enum class CodeRounding : uint32_t { kNone, kBfloat16, kHalf };

// `high` and `low` are what products of integers are of: a value is 256 * high + low, to a 32,512th
// of the largest, and exactly where the book has no `low`; both times `unit`.
struct CodeBook {
  CodeScales scales;
  bool two = false;     // It has `low`.
  bool narrow = false;  // No `high` is beyond +-12.
  // The row's float32 divides the scales instead of multiplying them.
  bool divides = false;
  // Of kFloat it is each row's own.
  CodeRounding rounding = CodeRounding::kNone;
  float unit = 1;
  std::array<float, kCodes> values;
  std::array<int8_t, kCodes> high;
  std::array<int8_t, kCodes> low = {};
};

// A book of these whole numbers, times `unit`.
constexpr CodeBook BookOfIntegers(CodeScales scales, bool narrow, float unit,
                                  const std::array<int8_t, kCodes>& integers) {
  CodeBook book{.scales = scales, .narrow = narrow, .unit = unit, .values = {}, .high = integers};
  for (size_t i = 0; i < kCodes; ++i) {
    book.values[i] = unit * static_cast<float>(integers[i]);
  }
  return book;
}

// A book of these values, of which the largest is 1, as whole numbers of `most`ths.
constexpr CodeBook BookOfFloats(int most, const std::array<float, kCodes>& values) {
  CodeBook book{.scales = CodeScales::kFloat,
                .two = true,
                .unit = 1.0f / static_cast<float>(most),
                .values = values,
                .high = {}};
  for (size_t i = 0; i < kCodes; ++i) {
    const float scaled = values[i] * static_cast<float>(most);
    const int number = static_cast<int>(scaled + (scaled < 0 ? -0.5f : 0.5f));
    const int high = (number + 128 + 65536) / 256 - 256;
    book.high[i] = static_cast<int8_t>(high);
    book.low[i] = static_cast<int8_t>(number - 256 * high);
  }
  return book;
}

// Twice the 4-bit floats (a sign, two bits of exponent, one of mantissa) of OCP's Microscaling
// formats 1.0.
inline constexpr std::array<int8_t, kCodes> kFloats4 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};
// ggml's kvalues_iq4nl.
inline constexpr std::array<int8_t, kCodes> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                          1,    13,   25,  38,  53,  69,  89,  113};
// bitsandbytes' "nf4": quantiles of a normal distribution (arXiv:2305.14314, appendix E).
inline constexpr std::array<float, kCodes> kNf4Values = {
    -0x1.000000p+0f, -0x1.647362p-1f, -0x1.0cd660p-1f, -0x1.946540p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  0x1.000000p+0f};
// bitsandbytes' "fp4": 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4, of both signs.
inline constexpr std::array<float, kCodes> kFp4Values = {
    0, 0x1.555556p-8f,  0x1.555556p-1f,  1,  0x1.555556p-2f,  0.5f,  0x1.555556p-3f,  0.25f,
    0, -0x1.555556p-8f, -0x1.555556p-1f, -1, -0x1.555556p-2f, -0.5f, -0x1.555556p-3f, -0.25f};

inline constexpr CodeBook kMxfp4Book = BookOfIntegers(CodeScales::kExponent, true, 0.5f, kFloats4);
inline constexpr CodeBook kNvfp4Book =
    BookOfIntegers(CodeScales::kFloat8Halves, true, 0.5f, kFloats4);
// As compressed-tensors has it, whose library gives weights in bfloat16.
constexpr CodeBook Nvfp4Bf16Book() {
  CodeBook book = kNvfp4Book;
  book.divides = true;
  book.rounding = CodeRounding::kBfloat16;
  return book;
}
inline constexpr CodeBook kNvfp4Bf16Book = Nvfp4Bf16Book();
inline constexpr CodeBook kIq4NlBook = BookOfIntegers(CodeScales::kHalf, false, 1, kIq4Values);
inline constexpr CodeBook kIq4XsBook = BookOfIntegers(CodeScales::kSuper, false, 1, kIq4Values);
// 127 * 256, the largest that has a `low` on either side.
inline constexpr CodeBook kNf4Book = BookOfFloats(32512, kNf4Values);
// 128 times 192, so that all are whole numbers.
inline constexpr CodeBook kFp4Book = BookOfFloats(24576, kFp4Values);

// Inputs that are kept together, behind all their scales, see PanelView of the CPU backend.
inline constexpr size_t kCodeGroup = 256;
// Bytes of the scales of a group of 16 outputs; the last group of a row has as many.
constexpr size_t CodeHeadBytes(CodeScales scales) {
  switch (scales) {
    case CodeScales::kExponent:
      return 128;
    case CodeScales::kSuper:
      return 192;
    default:
      return 256;
  }
}
// Of 16 outputs, before their first group: the float32 of each row, or its CodeRounding.
constexpr size_t CodeRowBytes(CodeScales scales) {
  return scales == CodeScales::kFloat8Halves || scales == CodeScales::kFloat ? 64 : 0;
}

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_CODE_BOOKS_H_
