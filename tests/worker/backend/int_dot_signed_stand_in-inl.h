// What NEON does, with the dot product extension or without it, in exact scalar code. Included as
// int_dot_*-inl.h are.

using DotWord = uint32_t;
struct DotWeights {
  int8_t v[16][4];
};
struct DotSum {
  int32_t v[16];
};
constexpr bool kDotSigned = true;

inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  std::memcpy(&word, q, sizeof(word));
  return word;
}
inline DotWeights LoadDotWeights(const uint8_t* line) {
  DotWeights out;
  for (int i = 0; i < 64; ++i) {
    out.v[i / 4][i % 4] = static_cast<int8_t>(line[i] - 128);
  }
  return out;
}
inline void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  for (int i = 0; i < 64; ++i) {
    low->v[i / 4][i % 4] = static_cast<int8_t>(line[i] & 15);
    high->v[i / 4][i % 4] = static_cast<int8_t>(line[i] >> 4);
  }
}
inline DotSum DotZero() { return {}; }
inline DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  int8_t q[4];
  std::memcpy(q, word, sizeof(q));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      sum.v[i] += weights.v[i][j] * q[j];
    }
  }
  return sum;
}
inline Lanes DotFloats(const DotSum& sum, int32_t add) {
  Lanes out;
  for (int i = 0; i < 16; ++i) {
    out.v[i] = static_cast<float>(sum.v[i] + add);
  }
  return out;
}
