// Dot products of four 8-bit pairs without vector instructions. Included after the lanes and a
// kDotOperands, which may be those of an instruction set that this stands in for.

constexpr bool kDotFlips = kDotOperands == DotOperands::kFlipped;
constexpr bool kDotSigned = kDotOperands == DotOperands::kSigned;

struct PlainWord {
  int8_t q[4];
};
struct FlippedWord {
  uint8_t magnitudes[4];
  uint8_t flips[4];
};
using DotWord = std::conditional_t<kDotFlips, FlippedWord, PlainWord>;
struct DotWeights {
  std::conditional_t<kDotSigned, int8_t, uint8_t> v[16][4];
};
struct DotSum {
  int32_t v[16];
};

inline void SetDotWord(const int8_t* q, PlainWord* word) { std::memcpy(word->q, q, 4); }
inline void SetDotWord(const int8_t* q, FlippedWord* word) {
  for (int j = 0; j < 4; ++j) {
    word->magnitudes[j] = static_cast<uint8_t>(q[j] < 0 ? -q[j] : q[j]);
    word->flips[j] = q[j] < 0 ? 0x7f : 0x80;
  }
}
inline DotWord MakeDotWord(const int8_t* q) {
  DotWord word;
  SetDotWord(q, &word);
  return word;
}
inline void MakeDotWords(const int8_t* q, DotWord* words, size_t stride) {
  for (size_t i = 0; i < 4; ++i) {
    SetDotWord(q + 4 * i, words + i * stride);
  }
}
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
// 16 bytes that codes point to.
struct CodeTable {
  uint8_t v[16];
};
STRATA_INLINE CodeTable LoadCodeTable(const uint8_t* bytes) {
  CodeTable table;
  std::memcpy(table.v, bytes, sizeof(table.v));
  return table;
}
STRATA_INLINE void LoadDotCodes(const uint8_t* line, const CodeTable& table, DotWeights* low,
                                DotWeights* high) {
  LoadDotNibbles(line, low, high);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      low->v[i][j] = static_cast<int8_t>(table.v[low->v[i][j]]);
      high->v[i][j] = static_cast<int8_t>(table.v[high->v[i][j]]);
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
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const PlainWord* word) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      sum.v[i] += weights.v[i][j] * word->q[j];
    }
  }
  return sum;
}
// Two products are added up in 16 bits, and lose what does not fit.
STRATA_INLINE DotSum DotStep(DotSum sum, const DotWeights& weights, const FlippedWord* word) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; j += 2) {
      const auto product = [&](int k) {
        return static_cast<int8_t>(weights.v[i][k] ^ word->flips[k]) * word->magnitudes[k];
      };
      sum.v[i] += static_cast<int16_t>(product(j) + product(j + 1));
    }
  }
  return sum;
}

// For quant_flipped-inl.h. A pattern has a bit for each of a word's bytes that is not negative.
constexpr size_t kFlipPatterns = 16;

STRATA_INLINE size_t FlipPattern(const FlippedWord& word) {
  size_t pattern = 0;
  for (int j = 0; j < 4; ++j) {
    pattern |= static_cast<size_t>(word.flips[j] >> 7) << j;
  }
  return pattern;
}
STRATA_INLINE void StoreFlipped(const DotWeights& weights, size_t pattern, uint8_t* to) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) {
      to[4 * i + j] = weights.v[i][j] ^ ((pattern >> j & 1) != 0 ? 0x80 : 0x7f);
    }
  }
}
STRATA_INLINE DotSum DotFlipped(DotSum sum, const uint8_t* flipped, const FlippedWord& word) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; j += 2) {
      const auto product = [&](int k) {
        return static_cast<int8_t>(flipped[4 * i + k]) * word.magnitudes[k];
      };
      sum.v[i] += static_cast<int16_t>(product(j) + product(j + 1));
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
