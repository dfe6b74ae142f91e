// Dot products of four 8-bit pairs by AVX2. Included after int_dot_256_lines-inl.h and
// int_dot_flips-inl.h.

using DotWeights = Bytes256;

STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  return {{LoadDotBytes(line, 0), LoadDotBytes(line, 1)}};
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const __m256i magnitudes = _mm256_set1_epi32(static_cast<int>(word->magnitudes));
  const __m256i flips = _mm256_set1_epi32(static_cast<int>(word->flips));
  const __m256i ones = _mm256_set1_epi16(1);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i w = _mm256_xor_si256(weights.v[i], flips);
    const __m256i pairs = _mm256_maddubs_epi16(magnitudes, w);
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(pairs, ones));
    // Or the compiler makes a tree of a whole block's additions, and stores every product on its
    // way.
    __asm__("" : "+x"(sum.v[i]));
  }
  return sum;
}

// For quant_flipped-inl.h. A pattern has a bit for each of a word's bytes that is not negative.
constexpr size_t kFlipPatterns = 16;

STRATA_INLINE size_t FlipPattern(const DotWord& word) {
  // The bytes' highest bits, moved side by side to the word's highest ones. None of the product's
  // other bits meet, so that nothing is carried.
  constexpr uint32_t kTogether = 1U << 21 | 1U << 14 | 1U << 7 | 1U;
  return (word.flips & 0x80808080U) * kTogether >> 28;
}
STRATA_INLINE void StoreFlipped(const DotWeights& weights, size_t pattern, uint8_t* to) {
  uint32_t flips = 0;
  for (size_t j = 0; j < 4; ++j) {
    flips |= ((pattern >> j & 1) != 0 ? 0x80U : 0x7fU) << 8 * j;
  }
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to) + i,
                       _mm256_xor_si256(weights.v[i], _mm256_set1_epi32(static_cast<int>(flips))));
  }
}
STRATA_INLINE DotSum DotFlipped(DotSum sum, const uint8_t* flipped, const DotWord& word) {
  const __m256i magnitudes = _mm256_set1_epi32(static_cast<int>(word.magnitudes));
  const __m256i ones = _mm256_set1_epi16(1);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(flipped) + i);
    const __m256i pairs = _mm256_maddubs_epi16(magnitudes, w);
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(pairs, ones));
    __asm__("" : "+x"(sum.v[i]));  // As above.
  }
  return sum;
}

// Weights u below 64 are multiplied as bytes, u q + u' q' of two inputs in 16 bits, and as many are
// added up as fit there: |q| <= 127, so that 15 * 127 * 2 of 8 words are 30,480, 31 * 127 * 2 of 4
// are 31,496, and 63 * 127 * 2 of 2 are 32,004.
using NarrowWord = uint32_t;  // Four int8.
using NarrowWeights = Bytes256;
// Of the outputs 0 to 7 and 8 to 15; the sums of the inputs 0, 1 and 2, 3 lie side by side.
struct NarrowSum {
  __m256i v[2];
};

constexpr int NarrowLines(int bits) { return 4 >> (bits - 4); }

STRATA_INLINE NarrowSum NarrowBegin(const DotSum& /*sum*/) {
  return {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}
STRATA_INLINE DotSum NarrowEnd(DotSum begun, const NarrowSum& sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    begun.v[i] = _mm256_add_epi32(begun.v[i], _mm256_madd_epi16(sum.v[i], ones));
  }
  return begun;
}
STRATA_INLINE NarrowSum DotStep(NarrowSum sum, const NarrowWeights& weights,
                                const NarrowWord* word) {
  const __m256i x = _mm256_set1_epi32(static_cast<int>(*word));
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    sum.v[i] = _mm256_add_epi16(sum.v[i], _mm256_maddubs_epi16(weights.v[i], x));
    __asm__("" : "+x"(sum.v[i]));  // As above.
  }
  return sum;
}
