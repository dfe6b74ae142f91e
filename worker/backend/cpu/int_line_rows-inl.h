// Lines of weights, a step for each row and panel. Included after an int_dot_*-inl.h that has no
// better order.

template <int P, int N, typename WordOf>
STRATA_INLINE void DotLine(const DotWeights (&weights)[P], const WordOf& word_of,
                           DotSum (&dots)[P][N]) {
  STRATA_UNROLL
  for (int r = 0; r < N; ++r) {
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      dots[p][r] = DotStep(dots[p][r], weights[p], word_of(r));
    }
  }
}
