// Dot products of four 8-bit pairs without vector instructions. Included after the lanes.

using DotWord = uint32_t;
struct DotWeights {
  uint8_t v[16][4];
};
struct DotSum {
  int32_t v[16];
};

constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  std::memcpy(&word, q, sizeof(word));
  return word;
}
STRATA_INLINE DotWeights LoadDotWeights(const uint8_t* line) {
  DotWeights out;
  std::memcpy(&out, line, sizeof(out));
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
STRATA_INLINE DotSum DotZero() { return {}; }
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  int8_t q[4];
  std::memcpy(q, word, sizeof(q));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      sum.v[i] += weights.v[i][j] * q[j];
    }
  }
  return sum;
}
STRATA_INLINE Lanes DotFloats(const DotSum& sum, int32_t add) {
  Lanes out;
  for (int i = 0; i < 16; ++i) {
    out.v[i] = static_cast<float>(sum.v[i] + add);
  }
  return out;
}
