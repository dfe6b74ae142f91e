// Dot products of four 8-bit pairs by VNNI in vectors of 256 bits. Included after the lanes.

using DotWord = uint32_t;
// Of the outputs 0 to 7 and 8 to 15.
struct DotWeights {
  __m256i v[2];
};
struct DotSum {
  __m256i v[2];
};

constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  std::memcpy(&word, q, sizeof(word));
  return word;
}
STRATA_INLINE __m256i LoadDotBytes(const uint8_t* line, int i) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line) + i);
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  return {{LoadDotBytes(line, 0), LoadDotBytes(line, 1)}};
}
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  const __m256i mask = _mm256_set1_epi8(15);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = LoadDotBytes(line, i);
    low->v[i] = _mm256_and_si256(bytes, mask);
    high->v[i] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  }
}
template <int kBits, int kAt>
STRATA_INLINE DotWeights WithHighBits(DotWeights low, const uint8_t* line) {
  const __m256i mask = _mm256_set1_epi8(((1 << kBits) - 1) << 4);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    __m256i bytes = LoadDotBytes(line, i);
    if constexpr (kAt < 4) {
      bytes = _mm256_slli_epi16(bytes, 4 - kAt);
    } else if constexpr (kAt > 4) {
      bytes = _mm256_srli_epi16(bytes, kAt - 4);
    }
    low.v[i] = _mm256_or_si256(low.v[i], _mm256_and_si256(bytes, mask));
  }
  return low;
}
STRATA_INLINE DotSum DotBegin(int32_t n) { return {{_mm256_set1_epi32(n), _mm256_set1_epi32(n)}}; }
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const __m256i x = _mm256_set1_epi32(static_cast<int>(*word));
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    sum.v[i] = _mm256_dpbusd_avx_epi32(sum.v[i], weights.v[i], x);
  }
  return sum;
}
STRATA_INLINE Lanes DotFloats(const DotSum& sum) {
  return {{Vector{_mm256_cvtepi32_ps(sum.v[0])}}, {Vector{_mm256_cvtepi32_ps(sum.v[1])}}};
}
