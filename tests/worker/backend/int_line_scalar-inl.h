// Weights of few bits as instruction sets take them that flip weights of 8 bits, and as others do,
// which take all alike: what int_line_bytes-inl.h is for these. Included after
// int_dot_scalar-inl.h.

struct ByteWeights {
  DotWeights weights;
};
// Of two inputs each, in 16 bits.
struct PairSum {
  int16_t v[16][2];
};

using NarrowWord = std::conditional_t<kDotFlips, PlainWord, DotWord>;
using NarrowWeights = std::conditional_t<kDotFlips, ByteWeights, DotWeights>;
using NarrowSum = std::conditional_t<kDotFlips, PairSum, DotSum>;

constexpr int NarrowLines(int bits) { return kDotFlips ? 4 >> (bits - 4) : 4; }

inline void LoadDotNibbles(const uint8_t* line, ByteWeights* low, ByteWeights* high) {
  LoadDotNibbles(line, &low->weights, &high->weights);
}
inline void LoadDotCodes(const uint8_t* line, const CodeTable& table, ByteWeights* low,
                         ByteWeights* high) {
  LoadDotCodes(line, table, &low->weights, &high->weights);
}
template <int kBits, int kAt>
ByteWeights WithHighBits(const ByteWeights& low, const uint8_t* line) {
  return {WithHighBits<kBits, kAt>(low.weights, line)};
}
template <typename Sum = NarrowSum>
Sum NarrowBegin(const DotSum& sum) {
  if constexpr (kDotFlips) {
    return Sum{};
  } else {
    return sum;
  }
}
template <typename Sum>
DotSum NarrowEnd(DotSum begun, const Sum& sum) {
  if constexpr (kDotFlips) {
    for (int i = 0; i < 16; ++i) {
      begun.v[i] += sum.v[i][0] + sum.v[i][1];
    }
    return begun;
  } else {
    return sum;
  }
}
// What does not fit is lost, as it is there.
inline PairSum DotStep(PairSum sum, const ByteWeights& weights, const PlainWord* word) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      int16_t& pair = sum.v[i][j / 2];
      pair = static_cast<int16_t>(pair + weights.weights.v[i][j] * word->q[j]);
    }
  }
  return sum;
}
