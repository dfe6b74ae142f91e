// Weights of few bits where dot products take bytes: they are multiplied as those of 8 bits are.
// Included after an int_dot_*-inl.h that leaves this open.

using NarrowWord = DotWord;
using NarrowWeights = DotWeights;
using NarrowSum = DotSum;

constexpr int NarrowLines(int /*bits*/) { return 4; }
STRATA_INLINE NarrowSum NarrowBegin(const DotSum& sum) { return sum; }
STRATA_INLINE DotSum NarrowEnd(const DotSum& /*begun*/, const NarrowSum& sum) { return sum; }
