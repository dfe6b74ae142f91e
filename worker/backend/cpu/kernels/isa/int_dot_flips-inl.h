// Activations for products of an unsigned and a signed byte, two of which are added up in 16 bits
// (x86's before VNNI). Included after the lanes, before an int_dot_pairs*-inl.h.
//
// Activations give the unsigned bytes, |q| <= 127, and weights the signed ones, w = u - 128: as 127
// * 128 * 2 is 32,512, no pair saturates. Where q is negative, w is flipped to -1 - w, so that
// |q| (-1 - w) is q w less |q|, and a sum begins with what all these make up (QuantRows::flipped).
// One operation of bits takes 128 off u and flips it.

struct alignas(8) DotWord {
  uint32_t magnitudes;  // Four bytes |q|, and
  uint32_t flips;       // what is to be flipped of u's bits: 0x80, or 0x7f where q is negative.
};

constexpr DotOperands kDotOperands = DotOperands::kFlipped;

// Of 16 activations, in order: the words' magnitudes, and their flips.
struct DotWordParts {
  __m128i magnitudes;
  __m128i flips;
};
inline DotWordParts SplitDotWords(__m128i q) {
  const __m128i negative = _mm_cmpgt_epi8(_mm_setzero_si128(), q);
  return {_mm_abs_epi8(q), _mm_xor_si128(negative, _mm_set1_epi8(-128))};
}

inline DotWord MakeDotWord(const int8_t* q) {
  int32_t bytes;
  std::memcpy(&bytes, q, sizeof(bytes));
  const DotWordParts parts = SplitDotWords(_mm_cvtsi32_si128(bytes));
  return {static_cast<uint32_t>(_mm_cvtsi128_si32(parts.magnitudes)),
          static_cast<uint32_t>(_mm_cvtsi128_si32(parts.flips))};
}

// Four words of 16 activations, `stride` words from one to the next.
inline void MakeDotWords(const int8_t* q, DotWord* words, size_t stride) {
  const DotWordParts parts = SplitDotWords(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
  const auto store = [&](__m128i pair, size_t at) {
    const int64_t first = _mm_cvtsi128_si64(pair);
    const int64_t second = _mm_extract_epi64(pair, 1);
    std::memcpy(words + at * stride, &first, sizeof(first));
    std::memcpy(words + (at + 1) * stride, &second, sizeof(second));
  };
  store(_mm_unpacklo_epi32(parts.magnitudes, parts.flips), 0);
  store(_mm_unpackhi_epi32(parts.magnitudes, parts.flips), 2);
}
