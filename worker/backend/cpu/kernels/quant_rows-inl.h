// Rows of int8 activations as products of integers take them. Included after kernels-inl.h and a
// dot product, as quant-inl.h says, and before that.

inline size_t QuantBlocks(size_t inputs) { return (inputs + kQuantBlock - 1) / kQuantBlock; }

constexpr size_t kQuantWords = kQuantBlock / 4;

// Where a word of a row stands among those of a block of 32 inputs: rows side by side, as vectors
// take them, or each row's words, as tiles do.
STRATA_INLINE size_t DotWordAt(size_t word, size_t row, size_t rows) {
  return kTiling.tile_rows > 0 ? row * kQuantWords + word : word * rows + row;
}

// Whether weights of few bits want words of their own.
constexpr bool kNarrowWords = sizeof(NarrowWord) != sizeof(DotWord);
constexpr size_t kWordBytes = sizeof(DotWord) + (kNarrowWords ? sizeof(NarrowWord) : 0);

constexpr bool kFlipped = kDotOperands == DotOperands::kFlipped;
// Numbers that belong to a block, see QuantRows.
constexpr size_t kBlockNumbers = kFlipped ? 6 : 5;

// Whole words, so that those of every block of rows are aligned.
inline size_t QuantizedRowBytes(size_t inputs) {
  const size_t block_bytes = kQuantWords * kWordBytes + kBlockNumbers * sizeof(float);
  const size_t bytes = QuantBlocks(inputs) * block_bytes;
  return (bytes + sizeof(DotWord) - 1) / sizeof(DotWord) * sizeof(DotWord);
}

// A block of R rows: the words [blocks][8][R] or [blocks][R][8], see DotWordAt, and the same for
// weights of few bits if they want others; then the scales, the words' sums times -128, and times
// the scale, of each half of the words the sum times -32, and, where operands are flipped, what
// that takes off a sum: the magnitudes of all that are negative [blocks][R].
struct QuantRows {
  const DotWord* words;
  const NarrowWord* narrow_words;
  const float* scales;
  const int32_t* offsets;
  const float* sums;
  const int32_t* halves[2];
  const int32_t* flipped;
};
STRATA_INLINE QuantRows QuantRowsAt(const uint8_t* packed, uint32_t rows, size_t blocks) {
  const size_t n = blocks * rows;
  const DotWord* const words = reinterpret_cast<const DotWord*>(packed);
  const DotWord* const end = words + n * kQuantWords;
  const NarrowWord* const narrow = reinterpret_cast<const NarrowWord*>(kNarrowWords ? end : words);
  const float* const scales = reinterpret_cast<const float*>(narrow + n * kQuantWords);
  const int32_t* const offsets = reinterpret_cast<const int32_t*>(scales + n);
  return {words,
          narrow,
          scales,
          offsets,
          scales + 2 * n,
          {offsets + 2 * n, offsets + 3 * n},
          kFlipped ? offsets + 4 * n : nullptr};
}

// Blocks of one row that are quantized together: a lane each.
struct QuantizedBlocks {
  int8_t q[kLanes][kQuantBlock];
  float scales[kLanes];
  int32_t offsets[kLanes];
  float sums[kLanes];
  int32_t first_halves[kLanes];
  int32_t second_halves[kLanes];
  int32_t flipped[kLanes];
};

// The blocks [x, x + 32), [x + 32, x + 64) and so on. Compilers unroll these loops by themselves;
// told to, GCC 12 adds up the first row of each four wrongly in scalar code for ARM (-O2).
inline void QuantizeBlocks(const float* x, QuantizedBlocks* out) {
  alignas(64) float largest[kLanes];
  for (size_t b = 0; b < kLanes; b += 4) {
    Lanes rows[4];
    for (size_t i = 0; i < 4; ++i) {
      const float* const at = x + (b + i) * kQuantBlock;
      rows[i] = Max(Magnitude(Load(at)), Magnitude(Load(at + kLanes)));
    }
    LargestLanes(rows, largest + b);
  }
  alignas(64) float factors[kLanes];
  Store(Div(Load(largest), Set(127.0f)), out->scales);
  Store(Div(Set(127.0f), Load(largest)), factors);
  for (size_t b = 0; b < kLanes; ++b) {
    const bool none = largest[b] < 0x1p-100f;  // Not of what is no number.
    out->scales[b] = none ? 0.0f : out->scales[b];
    factors[b] = none ? 0.0f : factors[b];
  }
  // Adding 1.5 * 2^23 rounds to the nearest whole number, ties to even, and leaves it in the low
  // bits.
  const Lanes magic = Set(12582912.0f);
  alignas(64) float halves[kLanes];
  alignas(64) float magnitudes[kLanes];
  for (size_t b = 0; b < kLanes; b += 4) {
    Lanes rows[4];
    Lanes firsts[4];
    Lanes positive[4];
    for (size_t i = 0; i < 4; ++i) {
      const float* const at = x + (b + i) * kQuantBlock;
      const Lanes factor = Set(factors[b + i]);
      const Lanes low = Add(Mul(Load(at), factor), magic);
      const Lanes high = Add(Mul(Load(at + kLanes), factor), magic);
      StoreLowBytes(low, out->q[b + i]);
      StoreLowBytes(high, out->q[b + i] + kLanes);
      firsts[i] = Sub(low, magic);
      const Lanes second = Sub(high, magic);
      rows[i] = Add(firsts[i], second);
      positive[i] = Add(Magnitude(firsts[i]), Magnitude(second));
    }
    TreeSums(rows, out->sums + b);
    TreeSums(firsts, halves + b);
    if constexpr (kFlipped) {
      TreeSums(positive, magnitudes + b);
    }
  }
  for (size_t b = 0; b < kLanes; ++b) {
    // What is no number left a sum that is none.
    if (out->sums[b] != out->sums[b]) {
      std::memset(out->q[b], 0, kQuantBlock);
      out->scales[b] = std::numeric_limits<float>::quiet_NaN();
      out->sums[b] = halves[b] = magnitudes[b] = 0;
    }
  }
  for (size_t b = 0; b < kLanes; ++b) {
    out->offsets[b] = -128 * static_cast<int32_t>(out->sums[b]);
    out->first_halves[b] = -32 * static_cast<int32_t>(halves[b]);
    out->second_halves[b] = -32 * static_cast<int32_t>(out->sums[b] - halves[b]);
    if constexpr (kFlipped) {
      out->flipped[b] = static_cast<int32_t>(magnitudes[b] - out->sums[b]) / 2;
    }
  }
  Store(Mul(Load(out->sums), Load(out->scales)), out->sums);
}

// Calls transpose(r) for fours of the `rows` >= 4, of which the last two may overlap.
template <typename Function>
STRATA_INLINE void ByFours(uint32_t rows, const Function& transpose) {
  for (uint32_t r = 0; r < rows; r += 4) {
    transpose(r + 4 <= rows ? r : rows - 4);
  }
}

// The words of block `i` of all rows. Words of four bytes are the bytes in order.
template <typename Word>
STRATA_INLINE void StoreDotWords(const QuantizedBlocks* from, uint32_t rows, size_t i, Word* to) {
  constexpr bool kBytes = sizeof(Word) == 4;
  if (kBytes && (kTiling.tile_rows > 0 || rows == 1)) {
    for (uint32_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * kQuantWords, from[r].q[i], kQuantBlock);
    }
  } else if (kBytes && rows >= 4) {
    ByFours(rows, [&](uint32_t r) {
      for (size_t w = 0; w < kQuantWords; w += 4) {
        TransposeWords(from[r].q[i] + 4 * w, sizeof(*from), to + w * rows + r, 4 * rows);
      }
    });
  } else {
    for (uint32_t r = 0; r < rows; ++r) {
      const int8_t* const q = from[r].q[i];
      if constexpr (kBytes) {
        for (size_t w = 0; w < kQuantWords; ++w) {
          std::memcpy(to + DotWordAt(w, r, rows), q + 4 * w, 4);
        }
      } else {
        for (size_t w = 0; w < kQuantWords; w += 4) {
          MakeDotWords(q + 4 * w, to + DotWordAt(w, r, rows), DotWordAt(1, 0, rows));
        }
      }
    }
  }
}

// One of the values, of 32 bits, that belong to the blocks: that of row r and block b to to[b][r].
template <typename T>
STRATA_INLINE void StoreOfBlocks(const QuantizedBlocks* from, T (QuantizedBlocks::*values)[kLanes],
                                 uint32_t rows, size_t blocks, T* to) {
  if (rows == 1) {
    std::memcpy(to, from->*values, blocks * sizeof(T));
    return;
  }
  size_t b = 0;
  for (; rows >= 4 && b + 4 <= blocks; b += 4) {
    ByFours(rows, [&](uint32_t r) {
      TransposeWords((from[r].*values) + b, sizeof(*from), to + b * rows + r, rows * sizeof(T));
    });
  }
  for (; b < blocks; ++b) {
    for (uint32_t r = 0; r < rows; ++r) {
      to[b * rows + r] = (from[r].*values)[b];
    }
  }
}

void QuantizePart(const float* x, size_t stride, uint32_t rows, size_t inputs, size_t first_block,
                  size_t end_block, uint8_t* packed) {
  const QuantRows to = QuantRowsAt(packed, rows, QuantBlocks(inputs));
  DotWord* const words = const_cast<DotWord*>(to.words);
  NarrowWord* const narrow = const_cast<NarrowWord*>(to.narrow_words);
  float* const scales = const_cast<float*>(to.scales);
  int32_t* const offsets = const_cast<int32_t*>(to.offsets);
  float* const sums = const_cast<float*>(to.sums);
  int32_t* const first_halves = const_cast<int32_t*>(to.halves[0]);
  int32_t* const second_halves = const_cast<int32_t*>(to.halves[1]);
  int32_t* const flipped = const_cast<int32_t*>(to.flipped);
  constexpr size_t kInputs = kLanes * kQuantBlock;
  QuantizedBlocks quantized[kTiling.alone_rows()];
  const size_t end = end_block * kQuantBlock < inputs ? end_block * kQuantBlock : inputs;
  for (size_t first = first_block; first < end_block; first += kLanes) {
    const size_t k = first * kQuantBlock;
    for (uint32_t r = 0; r < rows; ++r) {
      const float* from = x + r * stride + k;
      alignas(64) float tail[kInputs];
      if (end - k < kInputs) {
        std::memset(tail, 0, sizeof(tail));
        std::memcpy(tail, from, (end - k) * sizeof(float));
        from = tail;
      }
      QuantizeBlocks(from, &quantized[r]);
    }
    const size_t count = end_block - first < kLanes ? end_block - first : kLanes;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = (first + i) * kQuantWords * rows;
      StoreDotWords(quantized, rows, i, words + at);
      if constexpr (kNarrowWords) {
        StoreDotWords(quantized, rows, i, narrow + at);
      }
    }
    const size_t at = first * rows;
    StoreOfBlocks(quantized, &QuantizedBlocks::scales, rows, count, scales + at);
    StoreOfBlocks(quantized, &QuantizedBlocks::offsets, rows, count, offsets + at);
    StoreOfBlocks(quantized, &QuantizedBlocks::sums, rows, count, sums + at);
    StoreOfBlocks(quantized, &QuantizedBlocks::first_halves, rows, count, first_halves + at);
    StoreOfBlocks(quantized, &QuantizedBlocks::second_halves, rows, count, second_halves + at);
    if constexpr (kFlipped) {
      StoreOfBlocks(quantized, &QuantizedBlocks::flipped, rows, count, flipped + at);
    }
  }
}
void QuantizeRows(const float* x, size_t stride, uint32_t rows, size_t inputs, uint8_t* packed) {
  QuantizePart(x, stride, rows, inputs, 0, QuantBlocks(inputs), packed);
}
