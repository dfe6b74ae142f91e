// The dot product by NEON as every 64-bit ARM processor has it. Included after
// int_dot_neon_lines-inl.h.

// Two products fit in 16 bits: activations lie in +-127, weights in -128 to 127.
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const int8x16_t x = FourTimes(word);
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int16x8_t low = vmull_s8(vget_low_s8(weights.v[i]), vget_low_s8(x));
    const int16x8_t high = vmull_high_s8(weights.v[i], x);
    sum.v[i] = vpadalq_s16(sum.v[i], vpaddq_s16(low, high));
  }
  return sum;
}
