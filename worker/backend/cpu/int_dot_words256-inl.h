// Dot products of four 8-bit pairs by AVX2: in 16 bits, where no pair saturates. Included after
// int_dot_256_lines-inl.h.
//
// A vector of 32 bytes holds four inputs of each of eight outputs. As 16-bit numbers the inputs 0
// and 2 are its low bytes, 1 and 3 its high ones: masks and shifts widen them, and each product of
// two pairs is added up in the lane of its output.

using DotWord = uint64_t;  // Four int16: the inputs 0, 2, 1, 3.
// Of the outputs 0 to 7 and 8 to 15.
struct DotWeights {
  __m256i even[2];
  __m256i odd[2];
};

inline DotWord MakeDotWord(const int8_t* q) {
  int32_t bytes;
  std::memcpy(&bytes, q, sizeof(bytes));
  const __m128i wide = _mm_cvtepi8_epi16(_mm_cvtsi32_si128(bytes));
  return static_cast<DotWord>(
      _mm_cvtsi128_si64(_mm_shufflelo_epi16(wide, _MM_SHUFFLE(3, 1, 2, 0))));
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  const __m256i mask = _mm256_set1_epi16(255);
  DotWeights out;
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = LoadDotBytes(line, i);
    out.even[i] = _mm256_and_si256(bytes, mask);
    out.odd[i] = _mm256_srli_epi16(bytes, 8);
  }
  return out;
}
// Two of the four int16. Each is loaded by itself, or compilers would take the word apart.
STRATA_INLINE __m256i SpreadDotPair(const DotWord* word, int i) {
  int32_t pair;
  std::memcpy(&pair, reinterpret_cast<const uint8_t*>(word) + i * sizeof(pair), sizeof(pair));
  return _mm256_set1_epi32(pair);
}
STRATA_INLINE DotSum DotPart(DotSum sum, const __m256i (&weights)[2], __m256i x) {
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(weights[i], x));
    // Or the compiler makes a tree of a whole block's additions, and stores every product on its
    // way.
    __asm__("" : "+x"(sum.v[i]));
  }
  return sum;
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  sum = DotPart(sum, weights.even, SpreadDotPair(word, 0));
  return DotPart(sum, weights.odd, SpreadDotPair(word, 1));
}
// The even inputs of all rows, then the odd ones: sums, half of the weights, and two products are
// what registers hold of six rows.
template <int P, int N, typename WordOf>
STRATA_INLINE void DotLine(const DotWeights (&weights)[P], const WordOf& word_of,
                           DotSum (&dots)[P][N]) {
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      const __m256i x = SpreadDotPair(word_of(r), i);
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        dots[p][r] = DotPart(dots[p][r], i == 0 ? weights[p].even : weights[p].odd, x);
      }
    }
  }
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
