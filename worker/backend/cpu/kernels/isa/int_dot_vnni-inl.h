// Dot products of four 8-bit pairs by AVX-512 VNNI. Included after the lanes.

using DotWord = uint32_t;
using DotWeights = __m512i;
using DotSum = __m512i;

constexpr DotOperands kDotOperands = DotOperands::kUnsigned;

inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  std::memcpy(&word, q, sizeof(word));
  return word;
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) { return _mm512_loadu_si512(line); }
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i both = _mm512_loadu_si512(line);
  *low = _mm512_and_si512(both, mask);
  *high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
}
// 16 bytes that codes point to, in each 16 bytes of the vector.
using CodeTable = __m512i;
STRATA_INLINE CodeTable LoadCodeTable(const uint8_t* bytes) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
STRATA_INLINE void LoadDotCodes(const uint8_t* line, CodeTable table, DotWeights* low,
                                DotWeights* high) {
  LoadDotNibbles(line, low, high);
  *low = _mm512_shuffle_epi8(table, *low);
  *high = _mm512_shuffle_epi8(table, *high);
}
template <int kBits, int kAt>
STRATA_INLINE DotWeights WithHighBits(DotWeights low, const uint8_t* line) {
  const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << 4);
  __m512i high = _mm512_loadu_si512(line);
  if constexpr (kAt < 4) {
    high = _mm512_slli_epi16(high, 4 - kAt);
  } else if constexpr (kAt > 4) {
    high = _mm512_srli_epi16(high, kAt - 4);
  }
  return _mm512_ternarylogic_epi32(low, high, mask, 0xf8);  // low | (high & mask)
}
STRATA_INLINE DotSum DotBegin(int32_t n) { return _mm512_set1_epi32(n); }
STRATA_INLINE DotSum DotStep(DotSum sum, DotWeights weights, const DotWord* word) {
  return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(static_cast<int>(*word)));
}
STRATA_INLINE Lanes DotFloats(DotSum sum) { return {Vector{_mm512_cvtepi32_ps(sum)}}; }
