// Dot products of four 8-bit pairs by AVX-512 without VNNI, as int_dot_words256-inl.h has them by
// AVX2. Included after the lanes.

using DotWord = uint64_t;  // Four int16: the inputs 0, 2, 1, 3.
struct DotWeights {
  __m512i even, odd;
};
using DotSum = __m512i;

constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  int32_t bytes;
  std::memcpy(&bytes, q, sizeof(bytes));
  const __m128i wide = _mm_cvtepi8_epi16(_mm_cvtsi32_si128(bytes));
  return static_cast<DotWord>(
      _mm_cvtsi128_si64(_mm_shufflelo_epi16(wide, _MM_SHUFFLE(3, 1, 2, 0))));
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  const __m512i bytes = _mm512_loadu_si512(line);
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(255)), _mm512_srli_epi16(bytes, 8)};
}
STRATA_INLINE DotSum DotBegin(int32_t n) { return _mm512_set1_epi32(n); }
// Two of the four int16. Each is loaded by itself, or compilers would take the word apart.
STRATA_INLINE __m512i SpreadDotPair(const DotWord* word, int i) {
  int32_t pair;
  std::memcpy(&pair, reinterpret_cast<const uint8_t*>(word) + i * sizeof(pair), sizeof(pair));
  return _mm512_set1_epi32(pair);
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(weights.even, SpreadDotPair(word, 0)));
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(weights.odd, SpreadDotPair(word, 1)));
  __asm__("" : "+v"(sum));  // Or the compiler makes a tree of a whole block's additions.
  return sum;
}
STRATA_INLINE Lanes DotFloats(DotSum sum) { return {Vector{_mm512_cvtepi32_ps(sum)}}; }

using NarrowWord = uint32_t;  // Four int8.
struct NarrowWeights {
  __m512i v;
};
struct NarrowSum {
  __m512i v;
};

constexpr int NarrowLines(int bits) { return 4 >> (bits - 4); }

STRATA_INLINE void LoadDotNibbles(const uint8_t* line, NarrowWeights* low, NarrowWeights* high) {
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i bytes = _mm512_loadu_si512(line);
  low->v = _mm512_and_si512(bytes, mask);
  high->v = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
}
template <int kBits, int kAt>
STRATA_INLINE NarrowWeights WithHighBits(const NarrowWeights& low, const uint8_t* line) {
  const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << 4);
  __m512i bytes = _mm512_loadu_si512(line);
  if constexpr (kAt < 4) {
    bytes = _mm512_slli_epi16(bytes, 4 - kAt);
  } else if constexpr (kAt > 4) {
    bytes = _mm512_srli_epi16(bytes, kAt - 4);
  }
  return {_mm512_ternarylogic_epi32(low.v, bytes, mask, 0xf8)};  // low | (bytes & mask)
}
STRATA_INLINE NarrowSum NarrowBegin(const DotSum& /*sum*/) { return {_mm512_setzero_si512()}; }
STRATA_INLINE DotSum NarrowEnd(const DotSum& begun, const NarrowSum& sum) {
  return _mm512_add_epi32(begun, _mm512_madd_epi16(sum.v, _mm512_set1_epi16(1)));
}
STRATA_INLINE NarrowSum DotStep(NarrowSum sum, const NarrowWeights& weights,
                                const NarrowWord* word) {
  const __m512i x = _mm512_set1_epi32(static_cast<int>(*word));
  sum.v = _mm512_add_epi16(sum.v, _mm512_maddubs_epi16(weights.v, x));
  __asm__("" : "+v"(sum.v));
  return sum;
}
