// Dot products of four 8-bit pairs by VNNI in vectors of 256 bits. Included after
// int_dot_256_lines-inl.h.

using DotWord = uint32_t;
using DotWeights = Bytes256;

constexpr DotOperands kDotOperands = DotOperands::kUnsigned;

inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  std::memcpy(&word, q, sizeof(word));
  return word;
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  return {{LoadDotBytes(line, 0), LoadDotBytes(line, 1)}};
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const __m256i x = _mm256_set1_epi32(static_cast<int>(*word));
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    sum.v[i] = _mm256_dpbusd_avx_epi32(sum.v[i], weights.v[i], x);
  }
  return sum;
}
