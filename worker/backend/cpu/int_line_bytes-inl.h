// Lines of weights where dot products take bytes: those of few bits are multiplied as those of 8
// are. Included after an int_dot_*-inl.h that leaves this open.

using NarrowWord = DotWord;
using NarrowWeights = DotWeights;
using NarrowSum = DotSum;

constexpr int NarrowLines(int /*bits*/) { return 4; }
STRATA_INLINE NarrowSum NarrowBegin(const DotSum& sum) { return sum; }
STRATA_INLINE DotSum NarrowEnd(const DotSum& /*begun*/, const NarrowSum& sum) { return sum; }

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
