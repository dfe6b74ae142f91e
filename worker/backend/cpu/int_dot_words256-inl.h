// Dot products of four 8-bit pairs by AVX2: in 16 bits, where no pair saturates. Included after
// the lanes.

using DotWord = uint64_t;  // Four int16.
// Four outputs each, four inputs of each; sums of the inputs 0, 1 and 2, 3 lie side by side.
struct DotWeights {
  __m256i v[4];
};
using DotSum = DotWeights;

constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  const int16_t wide[4] = {q[0], q[1], q[2], q[3]};
  DotWord word;
  std::memcpy(&word, wide, sizeof(word));
  return word;
}
STRATA_INLINE __m256i WidenDotBytes(__m128i bytes) { return _mm256_cvtepu8_epi16(bytes); }
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  const __m128i* const p = reinterpret_cast<const __m128i*>(line);
  return {{WidenDotBytes(_mm_loadu_si128(p)), WidenDotBytes(_mm_loadu_si128(p + 1)),
           WidenDotBytes(_mm_loadu_si128(p + 2)), WidenDotBytes(_mm_loadu_si128(p + 3))}};
}
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  const __m128i mask = _mm_set1_epi8(15);
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line) + i);
    low->v[i] = WidenDotBytes(_mm_and_si128(both, mask));
    high->v[i] = WidenDotBytes(_mm_and_si128(_mm_srli_epi16(both, 4), mask));
  }
}
STRATA_INLINE DotSum DotBegin(int32_t n) {
  const __m256i first = _mm256_set1_epi64x(static_cast<uint32_t>(n));
  return {{first, first, first, first}};
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const __m256i x = _mm256_set1_epi64x(static_cast<int64_t>(*word));
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(weights.v[i], x));
  }
  return sum;
}
// Eight outputs in order: adding neighbours leaves the 128-bit halves of both operands interleaved.
STRATA_INLINE Vector JoinDotPairs(__m256i a, __m256i b) {
  const __m256i sums = _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);
  return Vector{_mm256_cvtepi32_ps(sums)};
}
STRATA_INLINE Lanes DotFloats(const DotSum& sum) {
  return {{JoinDotPairs(sum.v[0], sum.v[1])}, {JoinDotPairs(sum.v[2], sum.v[3])}};
}
