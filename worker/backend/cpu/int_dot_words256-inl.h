// Dot products of four 8-bit pairs by AVX2: in 16 bits, where no pair saturates. Included after
// the lanes.
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
struct DotSum {
  __m256i v[2];
};

constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  const int16_t wide[4] = {q[0], q[2], q[1], q[3]};
  DotWord word;
  std::memcpy(&word, wide, sizeof(word));
  return word;
}
// With so many instructions for each byte the processor's window holds too few bytes of a panel to
// keep the memory busy, with one row too: each line asks for the one that is so far ahead.
constexpr uintptr_t kDotPrefetchBytes = 3 << 10;
STRATA_INLINE __m256i LoadDotBytes(const uint8_t* line, int i) {
  if (i == 0) {
    // Beyond the last panel too, so it is no pointer into it.
    __builtin_prefetch(
        reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + kDotPrefetchBytes));
  }
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line) + i);
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
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  const __m256i mask = _mm256_set1_epi16(15);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = LoadDotBytes(line, i);
    low->even[i] = _mm256_and_si256(bytes, mask);
    high->even[i] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
    low->odd[i] = _mm256_and_si256(_mm256_srli_epi16(bytes, 8), mask);
    high->odd[i] = _mm256_srli_epi16(bytes, 12);
  }
}
template <int kLeft>
STRATA_INLINE __m256i ShiftDotPairs(__m256i x) {
  if constexpr (kLeft >= 0) {
    return _mm256_slli_epi16(x, kLeft);
  } else {
    return _mm256_srli_epi16(x, -kLeft);
  }
}
template <int kBits, int kAt>
STRATA_INLINE DotWeights WithHighBits(DotWeights low, const uint8_t* line) {
  const __m256i mask = _mm256_set1_epi16(((1 << kBits) - 1) << 4);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = LoadDotBytes(line, i);
    const __m256i even = ShiftDotPairs<4 - kAt>(bytes);
    const __m256i odd = ShiftDotPairs<-4 - kAt>(bytes);
    low.even[i] = _mm256_or_si256(low.even[i], _mm256_and_si256(even, mask));
    low.odd[i] = _mm256_or_si256(low.odd[i], _mm256_and_si256(odd, mask));
  }
  return low;
}
STRATA_INLINE DotSum DotBegin(int32_t n) { return {{_mm256_set1_epi32(n), _mm256_set1_epi32(n)}}; }
// Two of the four int16. Each is loaded by itself, or compilers would take the word apart.
STRATA_INLINE __m256i SpreadDotPair(const DotWord* word, int i) {
  int32_t pair;
  std::memcpy(&pair, reinterpret_cast<const uint8_t*>(word) + i * sizeof(pair), sizeof(pair));
  return _mm256_set1_epi32(pair);
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const __m256i even = SpreadDotPair(word, 0);
  const __m256i odd = SpreadDotPair(word, 1);
  STRATA_UNROLL
  for (int i = 0; i < 2; ++i) {
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(weights.even[i], even));
    sum.v[i] = _mm256_add_epi32(sum.v[i], _mm256_madd_epi16(weights.odd[i], odd));
    // Or the compiler makes a tree of a whole block's additions, and stores every product on its
    // way.
    __asm__("" : "+x"(sum.v[i]));
  }
  return sum;
}
STRATA_INLINE Lanes DotFloats(const DotSum& sum) {
  return {{Vector{_mm256_cvtepi32_ps(sum.v[0])}}, {Vector{_mm256_cvtepi32_ps(sum.v[1])}}};
}
