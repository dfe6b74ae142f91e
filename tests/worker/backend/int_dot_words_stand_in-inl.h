// What AVX2 and AVX-512 without VNNI do, in exact scalar code. Included as int_dot_*-inl.h are.

using DotWord = uint64_t;  // Four int16.
struct DotWeights {
  uint8_t v[16][4];
};
// The sums of the inputs 0, 1 and 2, 3 apart.
struct DotSum {
  int32_t v[16][2];
};
constexpr bool kDotSigned = false;

inline DotWord MakeDotWord(const int8_t* q) {
  const int16_t wide[4] = {q[0], q[1], q[2], q[3]};
  DotWord word;
  std::memcpy(&word, wide, sizeof(word));
  return word;
}
inline DotWeights LoadDotWeights(const uint8_t* line) {
  DotWeights out;
  std::memcpy(&out, line, sizeof(out));
  return out;
}
inline void LoadDotNibbles(const uint8_t* line, DotWeights* low, DotWeights* high) {
  for (int i = 0; i < 64; ++i) {
    low->v[i / 4][i % 4] = line[i] & 15;
    high->v[i / 4][i % 4] = line[i] >> 4;
  }
}
inline DotSum DotZero() { return {}; }
inline DotSum DotStep(DotSum sum, const DotWeights& weights, const DotWord* word) {
  int16_t q[4];
  std::memcpy(q, word, sizeof(q));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      sum.v[i][j / 2] += weights.v[i][j] * q[j];
    }
  }
  return sum;
}
inline Lanes DotFloats(const DotSum& sum, int32_t add) {
  Lanes out;
  for (int i = 0; i < 16; ++i) {
    out.v[i] = static_cast<float>(sum.v[i][0] + sum.v[i][1] + add);
  }
  return out;
}
