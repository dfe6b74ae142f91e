// Dot products of four 8-bit pairs without vector instructions. Included after the lanes, a
// kDotSigned and a DotActivation, as which a word keeps its four: int8_t, or wider to stand in for
// an instruction set that has them so.

struct DotWord {
  DotActivation q[4];
};
struct DotWeights {
  std::conditional_t<kDotSigned, int8_t, uint8_t> v[16][4];
};
struct DotSum {
  int32_t v[16];
};

inline DotWord MakeDotWord(const int8_t* q) { return {{q[0], q[1], q[2], q[3]}}; }
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  DotWeights out;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      out.v[i][j] = line[4 * i + j] - (kDotSigned ? 128 : 0);
    }
  }
  return out;
}
STRATA_INLINE void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      low->v[i][j] = line[4 * i + j] & 15;
      high->v[i][j] = line[4 * i + j] >> 4;
    }
  }
}
template <int kBits, int kAt>
STRATA_INLINE DotWeights WithHighBits(DotWeights low, const uint8_t* line) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      low.v[i][j] += (line[4 * i + j] >> kAt & ((1 << kBits) - 1)) << 4;
    }
  }
  return low;
}
STRATA_INLINE DotSum DotBegin(int32_t n) {
  DotSum sum;
  for (int i = 0; i < 16; ++i) {
    sum.v[i] = n;
  }
  return sum;
}
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      sum.v[i] += weights.v[i][j] * word->q[j];
    }
  }
  return sum;
}
STRATA_INLINE Lanes DotFloats(const DotSum& sum) {
  Lanes out;
  for (int i = 0; i < 16; ++i) {
    out.v[i] = static_cast<float>(sum.v[i]);
  }
  return out;
}
