// Products of quantized weights and int8 activations, written once over a dot product of 16
// outputs. Included after kernels-inl.h and one of the int_dot_*-inl.h, which give:
//   DotWord          four quantized activations, as the dot product wants them
//   DotWeights       16 outputs x 4 inputs; LoadDotWeights of a line of 8 bits, LoadDotNibbles of
//                    one of 4 bits (low halves, high halves)
//   DotSum           16 exact int32 sums; DotZero, DotStep(sum, weights, word), and
//                    DotFloats(sum, add), float(sum + add), exact as |sum| < 2^24
//   kDotSigned       whether weights of 8 bits were loaded less 128

inline size_t QuantBlocks(size_t inputs) { return (inputs + kQuantBlock - 1) / kQuantBlock; }

constexpr size_t kQuantWords = kQuantBlock / 4;

// Where a word of a row stands among those of a block of 32 inputs: rows side by side, as vectors
// take them, or each row's words, as tiles do.
STRATA_INLINE size_t DotWordAt(size_t word, size_t row, size_t rows) {
  return kTiling.tile_rows > 0 ? row * kQuantWords + word : word * rows + row;
}

// Whole words, so that those of every block of rows are aligned.
inline size_t QuantizedRowBytes(size_t inputs) {
  const size_t bytes = QuantBlocks(inputs) * (kQuantWords * sizeof(DotWord) + 3 * sizeof(float));
  return (bytes + sizeof(DotWord) - 1) / sizeof(DotWord) * sizeof(DotWord);
}

// A block of R rows: the words [blocks][8][R] or [blocks][R][8], see DotWordAt; then the scales,
// sums times -128, and sums [blocks][R].
struct QuantRows {
  const DotWord* words;
  const float* scales;
  const int32_t* offsets;
  const float* sums;
};
STRATA_INLINE QuantRows QuantRowsAt(const uint8_t* packed, uint32_t rows, size_t blocks) {
  const size_t n = blocks * rows;
  const DotWord* const words = reinterpret_cast<const DotWord*>(packed);
  const float* const scales = reinterpret_cast<const float*>(words + n * kQuantWords);
  return {words, scales, reinterpret_cast<const int32_t*>(scales + n), scales + 2 * n};
}

// One row's block of 32: q, and what belongs to it.
struct QuantizedBlock {
  int8_t q[kQuantBlock];
  float scale;
  int32_t sum;
};

STRATA_INLINE void QuantizeBlock(const float* x, QuantizedBlock* out) {
  // Magnitudes order as their bits do; whatever is no number is above all that are.
  uint32_t bits[kQuantBlock];
  std::memcpy(bits, x, sizeof(bits));
  uint32_t largest = 0;
  for (size_t i = 0; i < kQuantBlock; ++i) {
    const uint32_t magnitude = bits[i] & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  std::memset(out, 0, sizeof(*out));
  if (largest >= 0x7f800000u) {
    out->scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  if (largest < 0x0d800000u) {  // 2^-100.
    return;
  }
  float a;
  std::memcpy(&a, &largest, sizeof(a));
  out->scale = a / 127.0f;
  const float factor = 127.0f / a;
  // Adding 1.5 * 2^23 rounds to the nearest whole number, ties to even, and leaves it in the low
  // bits.
  constexpr float kMagic = 12582912.0f;
  constexpr int32_t kMagicBits = 0x4b400000;
  int32_t rounded[kQuantBlock];
  for (size_t i = 0; i < kQuantBlock; ++i) {
    const float t = x[i] * factor + kMagic;
    std::memcpy(&rounded[i], &t, sizeof(t));
    rounded[i] -= kMagicBits;
  }
  int32_t sum = 0;
  for (size_t i = 0; i < kQuantBlock; ++i) {
    out->q[i] = static_cast<int8_t>(rounded[i]);
    sum += rounded[i];
  }
  out->sum = sum;
}

void QuantizeRows(const float* x, size_t stride, uint32_t rows, size_t inputs, uint8_t* packed) {
  const size_t blocks = QuantBlocks(inputs);
  const QuantRows to = QuantRowsAt(packed, rows, blocks);
  DotWord* const words = const_cast<DotWord*>(to.words);
  float* const scales = const_cast<float*>(to.scales);
  int32_t* const offsets = const_cast<int32_t*>(to.offsets);
  float* const sums = const_cast<float*>(to.sums);
  for (uint32_t r = 0; r < rows; ++r) {
    const float* const row = x + r * stride;
    for (size_t b = 0; b < blocks; ++b) {
      QuantizedBlock block;
      if ((b + 1) * kQuantBlock <= inputs) {
        QuantizeBlock(row + b * kQuantBlock, &block);
      } else {
        float tail[kQuantBlock] = {};
        std::memcpy(tail, row + b * kQuantBlock, (inputs - b * kQuantBlock) * sizeof(float));
        QuantizeBlock(tail, &block);
      }
      for (size_t w = 0; w < kQuantWords; ++w) {
        words[b * kQuantWords * rows + DotWordAt(w, r, rows)] = MakeDotWord(block.q + 4 * w);
      }
      scales[b * rows + r] = block.scale;
      offsets[b * rows + r] = -128 * block.sum;
      sums[b * rows + r] = static_cast<float>(block.sum);
    }
  }
}

// Formats of quantized weights. How scales are stored is looked at once a group, so that there are
// fewer loops to compile.
struct Int8Format {
  static constexpr int kBits = 8;
  static constexpr bool kAffine = false;
};
struct Affine8Format {
  static constexpr int kBits = 8;
  static constexpr bool kAffine = true;
};
struct Affine4Format {
  static constexpr int kBits = 4;
  static constexpr bool kAffine = true;
};

STRATA_INLINE Lanes LoadScales(Dtype dtype, const uint8_t* p) {
  return dtype == Dtype::kF16    ? Load(reinterpret_cast<const F16*>(p))
         : dtype == Dtype::kBF16 ? Load(reinterpret_cast<const BF16*>(p))
                                 : Load(reinterpret_cast<const float*>(p));
}
// Of 16 scales.
STRATA_INLINE size_t ScaleBytes(const MatmulArgs& args) {
  return kLanes * (args.weights.scale_dtype == Dtype::kF32 ? 4 : 2);
}

// What makes a block's sum of q * (weights as loaded) that of q * (u - zero); `offset` is -128
// times the sum of q.
template <typename F>
STRATA_INLINE int32_t DotCorrection(int32_t offset) {
  constexpr bool kWantsSigned = !F::kAffine;
  if constexpr (F::kBits == 4 || kWantsSigned == kDotSigned) {
    return 0;
  } else {
    return kDotSigned ? -offset : offset;
  }
}

// So many bytes of weights are asked for ahead of their use, where a block takes several rows: the
// processor's window then holds too few blocks to keep the memory busy. The more rows, the longer
// each block takes, and the fewer bytes are as far ahead.
constexpr size_t PrefetchBytes(int rows) { return rows > 4 ? 3 << 10 : 6 << 10; }

// One block of 32 inputs of a panel and R rows, added to `dots`.
template <typename F, int R>
STRATA_INLINE void DotBlock(const uint8_t* lines, const DotWord* words, DotSum (&dots)[R]) {
  constexpr int kLines = F::kBits == 8 ? 8 : 4;
  STRATA_UNROLL
  for (int line = 0; line < kLines; ++line) {
    if constexpr (R > 1) {
      __builtin_prefetch(lines + line * 64 + PrefetchBytes(R));
    }
    if constexpr (F::kBits == 8) {
      const DotWeights w = LoadDotWeights(lines + line * 64);
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        dots[r] = DotStep(dots[r], w, words + DotWordAt(line, r, R));
      }
    } else {
      DotWeights low;
      DotWeights high;
      LoadDotNibbles(lines + line * 64, &low, &high);
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        dots[r] = DotStep(dots[r], low, words + DotWordAt(2 * line, r, R));
        dots[r] = DotStep(dots[r], high, words + DotWordAt(2 * line + 1, r, R));
      }
    }
  }
}

// acc := the chain's next link, of a block's exact sum; `at` is that of the row and block in x.
template <typename F>
STRATA_INLINE Lanes AddBlock(const QuantRows& x, size_t at, const DotSum& sum, const Lanes& s,
                             const Lanes& b, Lanes acc) {
  const Lanes d = Set(x.scales[at]);
  acc = Fma(DotFloats(sum, DotCorrection<F>(x.offsets[at])), Mul(d, s), acc);
  if constexpr (F::kAffine) {
    acc = Fma(Set(x.sums[at]), Mul(d, b), acc);
  }
  return acc;
}

// R rows of one panel. One, so that memory is read in one stream: blocks do not wait for each
// other, and so many are on their way at once.
template <typename F, int R>
void QuantTile(const MatmulArgs& args, const uint8_t* panel, const QuantRows& x, size_t output,
               float* out) {
  const size_t scale_bytes = ScaleBytes(args);
  constexpr size_t kBlockBytes = kQuantBlock * kLanes * F::kBits / 8;
  Lanes acc[R];
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r] = Set(0.0f);
  }
  const size_t blocks = QuantBlocks(args.weights.inputs);
  const size_t group_blocks = args.weights.group / kQuantBlock;
  for (size_t first = 0; first < blocks; first += group_blocks) {
    const Lanes s = LoadScales(args.weights.scale_dtype, panel);
    const Lanes b =
        F::kAffine ? LoadScales(args.weights.scale_dtype, panel + scale_bytes) : Set(0.0f);
    panel += (F::kAffine ? 2 : 1) * scale_bytes;
    const size_t end = first + group_blocks < blocks ? first + group_blocks : blocks;
    for (size_t block = first; block < end; ++block) {
      DotSum dots[R];
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        dots[r] = DotZero();
      }
      DotBlock<F, R>(panel, x.words + block * kQuantWords * R, dots);
      panel += kBlockBytes;
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r] = AddBlock<F>(x, block * R + r, dots[r], s, b, acc[r]);
      }
    }
  }
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    StoreOutputs(args, acc[r], output, out + r * args.out_stride);
  }
}

// The same by matrix tiles, of the panels [first, end): defined where there are any, in
// quant_tiles-inl.h.
template <typename F, int R>
void MultiplyTiles(const MatmulArgs& args, const QuantRows& x, size_t first, size_t end,
                   float* out);

template <typename F>
struct QuantProduct {
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const size_t inputs = args.weights.inputs;
    const QuantRows x =
        QuantRowsAt(args.packed + row * QuantizedRowBytes(inputs), R, QuantBlocks(inputs));
    if constexpr (kTiling.tile_rows > 0 && R >= kTiling.tile_rows) {
      MultiplyTiles<F, R>(args, x, first, end, out);
    } else {
      for (; first < end; ++first) {
        QuantTile<F, R>(args, args.weights.data + first * args.weights.panel_bytes, x,
                        first * kLanes, out);
      }
    }
  }
};

// The same weights and float activations: each weight is put together, then used as one stored so.
template <typename F, int R>
void DequantTile(const MatmulArgs& args, const uint8_t* panel, const float* x, size_t output,
                 float* out) {
  const size_t scale_bytes = ScaleBytes(args);
  constexpr size_t kPerLine = 4 * 8 / F::kBits;
  Lanes acc[R];
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r] = Set(0.0f);
  }
  const size_t inputs = args.weights.inputs;
  for (size_t first = 0; first < inputs; first += args.weights.group) {
    const Lanes s = LoadScales(args.weights.scale_dtype, panel);
    const Lanes b =
        F::kAffine ? LoadScales(args.weights.scale_dtype, panel + scale_bytes) : Set(0.0f);
    panel += (F::kAffine ? 2 : 1) * scale_bytes;
    const size_t end = first + args.weights.group < inputs ? first + args.weights.group : inputs;
    for (size_t k = first; k < end; ++k) {
      const size_t in_line = (k - first) % kPerLine;
      // A line's bytes are inputs in order; with 4 bits the low halves come first.
      const int shift = static_cast<int>(in_line % 4 * 8 + in_line / 4 * 4);
      const uint8_t* const line = panel + (k - first) / kPerLine * 64;
      Lanes u = LoadBits(line, shift, F::kBits == 8 ? 255 : 15);
      if constexpr (!F::kAffine) {
        u = Sub(u, Set(128.0f));
      }
      const Lanes w = Fma(s, u, b);
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r] = Fma(Set(x[k * R + r]), w, acc[r]);
      }
    }
    const size_t blocks = QuantBlocks(end - first);
    panel += blocks * kQuantBlock * kLanes * F::kBits / 8;
  }
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    StoreOutputs(args, acc[r], output, out + r * args.out_stride);
  }
}

template <typename F>
struct DequantProduct {
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    for (; first < end; ++first) {
      DequantTile<F, R>(args, args.weights.data + first * args.weights.panel_bytes,
                        FloatRowsAt(args, row), first * kLanes, out);
    }
  }
};

template <template <typename> typename Product>
void MultiplyQuantized(const MatmulArgs& args, size_t first, size_t end) {
  switch (args.weights.format) {
    case WeightFormat::kInt8:
      Multiply<Product<Int8Format>>(args, first, end);
      return;
    case WeightFormat::kAffine8:
      Multiply<Product<Affine8Format>>(args, first, end);
      return;
    case WeightFormat::kAffine4:
      Multiply<Product<Affine4Format>>(args, first, end);
      return;
    default:
      STRATA_CHECK(false);
  }
}

float RunDots(size_t count) {
  constexpr int kChains = kTiling.dot_chains;
  DotSum sums[kChains];
  alignas(64) uint8_t line[64];
  std::memset(line, 3, sizeof(line));
  const DotWeights weights = LoadDotWeights(line);
  STRATA_UNROLL
  for (int i = 0; i < kChains; ++i) {
    // Each begins with another sum, or the compiler would make one chain of all.
    const int8_t q[4] = {1, -1, 2, static_cast<int8_t>(i)};
    const DotWord word = MakeDotWord(q);
    sums[i] = DotStep(DotZero(), weights, &word);
  }
  const int8_t q[4] = {1, -1, 2, -2};
  const DotWord word = MakeDotWord(q);
  for (size_t k = 0; k < count * 8 / kChains; ++k) {
    STRATA_UNROLL
    for (int i = 0; i < kChains; ++i) {
      sums[i] = DotStep(sums[i], weights, &word);
    }
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) {
    total += TreeSum(DotFloats(sums[i], 0));
  }
  return total;
}
