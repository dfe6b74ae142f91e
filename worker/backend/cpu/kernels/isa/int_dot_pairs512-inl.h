// Dot products of four 8-bit pairs by AVX-512 without VNNI. Included after int_dot_flips-inl.h.

using DotWeights = __m512i;
using DotSum = __m512i;

STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) { return _mm512_loadu_si512(line); }
STRATA_INLINE DotSum DotBegin(int32_t n) { return _mm512_set1_epi32(n); }
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const __m512i magnitudes = _mm512_set1_epi32(static_cast<int>(word->magnitudes));
  const __m512i flips = _mm512_set1_epi32(static_cast<int>(word->flips));
  const __m512i pairs = _mm512_maddubs_epi16(magnitudes, _mm512_xor_si512(weights, flips));
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
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
// 16 bytes that codes point to, in each 16 bytes of the vector.
using CodeTable = __m512i;
STRATA_INLINE CodeTable LoadCodeTable(const uint8_t* bytes) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
STRATA_INLINE void LoadDotCodes(const uint8_t* line, CodeTable table, NarrowWeights* low,
                                NarrowWeights* high) {
  LoadDotNibbles(line, low, high);
  low->v = _mm512_shuffle_epi8(table, low->v);
  high->v = _mm512_shuffle_epi8(table, high->v);
}
STRATA_INLINE void LoadDotCodes(const uint8_t* line, CodeTable table, DotWeights* low,
                                DotWeights* high) {
  NarrowWeights first;
  NarrowWeights second;
  LoadDotCodes(line, table, &first, &second);
  *low = first.v;
  *high = second.v;
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
