// The dot product by NEON's extension of that name. Included after int_dot_neon_lines-inl.h.

STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  const int8x16_t x = FourTimes(word);
  STRATA_UNROLL
  for (int i = 0; i < 4; ++i) {
    sum.v[i] = vdotq_s32(sum.v[i], weights.v[i], x);
  }
  return sum;
}
