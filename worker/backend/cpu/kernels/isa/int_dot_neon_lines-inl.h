// Operands and sums of NEON's dot products of four 8-bit pairs, both signed. Included after the
// lanes and before the DotStep of int_dot_neon-inl.h or int_dot_neondot-inl.h.

using DotWord = uint32_t;
// Four outputs each.
struct DotWeights {
  int8x16_t v[4];
};
struct DotSum {
  int32x4_t v[4];
};

constexpr DotOperands kDotOperands = DotOperands::kSigned;

inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  std::memcpy(&word, q, sizeof(word));
  return word;
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  const uint8x16_t sign = vdupq_n_u8(0x80);
  DotWeights out;
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    out.v[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(line + 16 * i), sign));
  }
  return out;
}
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  const uint8x16_t mask = vdupq_n_u8(15);
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t both = vld1q_u8(line + 16 * i);
    low->v[i] = vreinterpretq_s8_u8(vandq_u8(both, mask));
    high->v[i] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
}
// 16 bytes that codes point to.
using CodeTable = int8x16_t;
STRATA_INLINE CodeTable LoadCodeTable(const uint8_t* bytes) {
  return vreinterpretq_s8_u8(vld1q_u8(bytes));
}
STRATA_INLINE void LoadDotCodes(const uint8_t* line, CodeTable table, DotWeights* low,
                                DotWeights* high) {
  LoadDotNibbles(line, low, high);
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    low->v[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(low->v[i]));
    high->v[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(high->v[i]));
  }
}
template <int kBits, int kAt>
STRATA_INLINE DotWeights WithHighBits(DotWeights low, const uint8_t* line) {
  const uint8x16_t mask = vdupq_n_u8(((1 << kBits) - 1) << 4);
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint8x16_t bytes = vld1q_u8(line + 16 * i);
    if constexpr (kAt < 4) {
      bytes = vshlq_n_u8(bytes, 4 - kAt);
    } else if constexpr (kAt > 4) {
      bytes = vshrq_n_u8(bytes, kAt - 4);
    }
    low.v[i] = vorrq_s8(low.v[i], vreinterpretq_s8_u8(vandq_u8(bytes, mask)));
  }
  return low;
}
STRATA_INLINE DotSum DotBegin(int32_t n) {
  const int32x4_t all = vdupq_n_s32(n);
  return {{all, all, all, all}};
}
STRATA_INLINE int8x16_t FourTimes(const DotWord* word) {
  return vreinterpretq_s8_u32(vdupq_n_u32(*word));
}
STRATA_INLINE Lanes DotFloats(const DotSum& sum) {
  Vector out[4];
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    out[i] = Vector(vcvtq_f32_s32(sum.v[i]));
  }
  return {{{out[0]}, {out[1]}}, {{out[2]}, {out[3]}}};
}
