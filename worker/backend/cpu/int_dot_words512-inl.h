// Dot products of four 8-bit pairs by AVX-512 without VNNI: in 16 bits, where no pair saturates.
// Included after the lanes.

using DotWord = uint64_t;  // Four int16.
// Outputs 0 to 7 and 8 to 15, four inputs each; sums of the inputs 0, 1 and 2, 3 lie side by side.
struct DotWeights {
  __m512i lo, hi;
};
using DotSum = DotWeights;

constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  const int16_t wide[4] = {q[0], q[1], q[2], q[3]};
  DotWord word;
  std::memcpy(&word, wide, sizeof(word));
  return word;
}
STRATA_INLINE DotWeights WidenDotWeights(__m512i line) {
  return {_mm512_cvtepu8_epi16(_mm512_castsi512_si256(line)),
          _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(line, 1))};
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  return WidenDotWeights(_mm512_loadu_si512(line));
}
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i both = _mm512_loadu_si512(line);
  *low = WidenDotWeights(_mm512_and_si512(both, mask));
  *high = WidenDotWeights(_mm512_and_si512(_mm512_srli_epi16(both, 4), mask));
}
template <int kBits, int kAt>
STRATA_INLINE DotWeights WithHighBits(const DotWeights& low, const uint8_t* line) {
  const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << 4);
  __m512i bytes = _mm512_loadu_si512(line);
  if constexpr (kAt < 4) {
    bytes = _mm512_slli_epi16(bytes, 4 - kAt);
  } else if constexpr (kAt > 4) {
    bytes = _mm512_srli_epi16(bytes, kAt - 4);
  }
  const DotWeights high = WidenDotWeights(_mm512_and_si512(bytes, mask));
  return {_mm512_or_si512(low.lo, high.lo), _mm512_or_si512(low.hi, high.hi)};
}
STRATA_INLINE DotSum DotBegin(int32_t n) {
  const __m512i first = _mm512_set1_epi64(static_cast<uint32_t>(n));
  return {first, first};
}
STRATA_INLINE DotSum DotStep(DotSum sum, DotWeights weights, const DotWord* word) {
  const __m512i x = _mm512_set1_epi64(static_cast<int64_t>(*word));
  return {_mm512_add_epi32(sum.lo, _mm512_madd_epi16(weights.lo, x)),
          _mm512_add_epi32(sum.hi, _mm512_madd_epi16(weights.hi, x))};
}
STRATA_INLINE Lanes DotFloats(DotSum sum) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512i all = _mm512_add_epi32(_mm512_permutex2var_epi32(sum.lo, even, sum.hi),
                                       _mm512_permutex2var_epi32(sum.lo, odd, sum.hi));
  return {Vector{_mm512_cvtepi32_ps(all)}};
}
