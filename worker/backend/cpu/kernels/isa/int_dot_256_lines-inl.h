// Lines of weights, and sums, in vectors of 256 bits. Included after the lanes, before an
// int_dot_*-inl.h of such vectors.

// Of the outputs 0 to 7 and 8 to 15, four bytes each.
struct Bytes256 {
  __m256i v[2];
};
// Of the same outputs.
struct DotSum {
  __m256i v[2];
};

STRATA_INLINE __m256i LoadDotBytes(const uint8_t* line, int i) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line) + i);
}
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, Bytes256* low, Bytes256* high) {
  const __m256i mask = _mm256_set1_epi8(15);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = LoadDotBytes(line, i);
    low->v[i] = _mm256_and_si256(bytes, mask);
    high->v[i] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  }
}
// 16 bytes that codes point to, in both halves of the vector.
using CodeTable = __m256i;
STRATA_INLINE CodeTable LoadCodeTable(const uint8_t* bytes) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
STRATA_INLINE void LoadDotCodes(const uint8_t* line, CodeTable table, Bytes256* low,
                                Bytes256* high) {
  LoadDotNibbles(line, low, high);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    low->v[i] = _mm256_shuffle_epi8(table, low->v[i]);
    high->v[i] = _mm256_shuffle_epi8(table, high->v[i]);
  }
}
template <int kBits, int kAt>
STRATA_INLINE Bytes256 WithHighBits(Bytes256 low, const uint8_t* line) {
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
STRATA_INLINE Lanes DotFloats(const DotSum& sum) {
  return {{Vector{_mm256_cvtepi32_ps(sum.v[0])}}, {Vector{_mm256_cvtepi32_ps(sum.v[1])}}};
}
