// Products of ggml's super-blocks (see PanelView), with int8 and with float activations. Included
// after quant-inl.h. Matrix tiles do not take them.

struct Super4Format {
  static constexpr int kBits = 4;
};
struct Super5Format {
  static constexpr int kBits = 5;
};
struct Super6Format {
  static constexpr int kBits = 6;
};

// Bytes of a block's lines, and of a super-block.
template <typename F>
constexpr size_t SuperLineBytes() {
  return kQuantBlock * kLanes * F::kBits / 8;
}
template <typename F>
constexpr size_t SuperBytes() {
  return kSuperHeadBytes + kSuperBlocks * SuperLineBytes<F>();
}

// Lines of 4 bits; bits above those; and bits of the integers that are multiplied. Where there are
// but the fifth and sixth bits, those are all of a weight, times 16.
template <typename F>
constexpr int kNibbleLines = F::kBits < 4 ? 0 : 4;
template <typename F>
constexpr int kHighBitsOf = F::kBits < 4 ? F::kBits : F::kBits - 4;
template <typename F>
constexpr int kIntegerBits = F::kBits < 4 ? 4 + F::kBits : F::kBits;

// The integers of the words 2 * kLine (`low`) and 2 * kLine + 1 of a block: a line of 4 bits, with
// their higher bits. The line so many bytes ahead is prefetched; 0: none is.
template <typename F, int kLine, size_t kAhead, typename Weights>
STRATA_INLINE void LoadSuperLine(const uint8_t* lines, Weights* low, Weights* high) {
  constexpr int kHighBits = kHighBitsOf<F>;
  if constexpr (kNibbleLines<F> != 0) {
    if constexpr (kAhead != 0) {
      PrefetchWeights(lines + kLine * 64 + kAhead);
    }
    PrefetchByLine(lines + kLine * 64);
    LoadDotNibbles(lines + kLine * 64, low, high);
  } else {
    *low = Weights{};
    *high = Weights{};
  }
  if constexpr (kHighBits != 0) {
    constexpr int kAt = 2 * kLine * kHighBits;
    const uint8_t* const bits = lines + (kNibbleLines<F> + kAt / 8) * 64;
    if constexpr (kAt % 8 == 0) {
      if constexpr (kAhead != 0) {
        PrefetchWeights(bits + kAhead);
      }
      PrefetchByLine(bits);
    }
    *low = WithHighBits<kHighBits, kAt % 8>(*low, bits);
    *high = WithHighBits<kHighBits, kAt % 8 + kHighBits>(*high, bits);
  }
}

// The lines [kLine, kEnd) of a block and R of `rows` rows, the first at `words`, added to `sums`.
template <typename F, int R, int kLine, int kEnd>
STRATA_INLINE void NarrowSteps(const uint8_t* lines, const NarrowWord* words, size_t rows,
                               NarrowSum (&sums)[R]) {
  NarrowWeights low;
  NarrowWeights high;
  LoadSuperLine<F, kLine, PrefetchDistance<R>(8)>(lines, &low, &high);
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    sums[r] = DotStep(sums[r], low, words + DotWordAt(2 * kLine, r, rows));
    sums[r] = DotStep(sums[r], high, words + DotWordAt(2 * kLine + 1, r, rows));
  }
  if constexpr (kLine + 1 < kEnd) {
    NarrowSteps<F, R, kLine + 1, kEnd>(lines, words, rows, sums);
  }
}

// The same, of any number of lines, added to `dots`.
template <typename F, int R, int kLine, int kEnd>
STRATA_INLINE void DotLines(const uint8_t* lines, const NarrowWord* words, size_t rows,
                            DotSum (&dots)[R]) {
  constexpr int kMost = NarrowLines(kIntegerBits<F>);
  constexpr int kLast = kEnd - kLine < kMost ? kEnd : kLine + kMost;
  NarrowSum sums[R];
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    sums[r] = NarrowBegin(dots[r]);
  }
  NarrowSteps<F, R, kLine, kLast>(lines, words, rows, sums);
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    dots[r] = NarrowEnd(dots[r], sums[r]);
  }
  if constexpr (kLast < kEnd) {
    DotLines<F, R, kLast, kEnd>(lines, words, rows, dots);
  }
}

// Scale and bias of the 32 inputs that `c` and, behind those of all 256, m are of.
struct SuperScales {
  Lanes s, b;
};
STRATA_INLINE SuperScales LoadSuperScales(const uint8_t* head, size_t block) {
  const F16* const d = reinterpret_cast<const F16*>(head);
  const int8_t* const c = reinterpret_cast<const int8_t*>(head + 64) + block * kLanes;
  const Lanes minus = Mul(Load(d + kLanes), Load(c + kSuperBlocks * kLanes));
  return {Mul(Load(d), Load(c)), Mul(Set(-1.0f), minus)};
}
STRATA_INLINE Lanes LoadHalfScale(const uint8_t* head, size_t half) {
  return Load(reinterpret_cast<const int8_t*>(head + 64) + half * kLanes);
}

// One super-block of a panel and R rows: the chains' next links. `first` is its first block in x.
template <typename F, int R>
STRATA_INLINE void AddSuperBlock(const uint8_t* head, const QuantRows& x, size_t first,
                                 Lanes (&acc)[R]) {
  PrefetchScales<PrefetchDistance<R>(8)>(head, kSuperHeadBytes);
  const uint8_t* lines = head + kSuperHeadBytes;
  for (size_t i = 0; i < kSuperBlocks; ++i) {
    const size_t at = (first + i) * R;
    DotSum dots[R];
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      dots[r] = DotBegin(0);
    }
    DotLines<F, R, 0, 4>(lines, x.narrow_words + at * kQuantWords, R, dots);
    const SuperScales scales = LoadSuperScales(head, i);
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      const Lanes part = Fma(DotFloats(dots[r]), Set(x.scales[at + r]), Set(0.0f));
      acc[r] = Fma(part, scales.s, acc[r]);
      acc[r] = Fma(Set(x.sums[at + r]), scales.b, acc[r]);
    }
    lines += SuperLineBytes<F>();
  }
}

// The same of kSuper6. Sums of halves are below 2^16, so that those times c and their sum, below
// 2^24, are exact.
template <int R>
STRATA_INLINE void AddSuper6(const uint8_t* head, const QuantRows& x, size_t first,
                             Lanes (&acc)[R]) {
  using F = Super6Format;
  PrefetchScales<PrefetchDistance<R>(8)>(head, kSuperHeadBytes);
  const uint8_t* lines = head + kSuperHeadBytes;
  Lanes part[R];
  Clear(part);
  for (size_t i = 0; i < kSuperBlocks; ++i) {
    const size_t at = (first + i) * R;
    const NarrowWord* const words = x.narrow_words + at * kQuantWords;
    DotSum dots[R];
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      dots[r] = DotBegin(x.halves[0][at + r]);
    }
    DotLines<F, R, 0, 2>(lines, words, R, dots);
    Lanes sums[R];
    const Lanes c0 = LoadHalfScale(head, 2 * i);
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      sums[r] = Mul(DotFloats(dots[r]), c0);
      dots[r] = DotBegin(x.halves[1][at + r]);
    }
    DotLines<F, R, 2, 4>(lines, words, R, dots);
    const Lanes c1 = LoadHalfScale(head, 2 * i + 1);
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      sums[r] = Fma(DotFloats(dots[r]), c1, sums[r]);
      part[r] = Fma(sums[r], Set(x.scales[at + r]), part[r]);
    }
    lines += SuperLineBytes<F>();
  }
  const Lanes d = Load(reinterpret_cast<const float*>(head));
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r] = Fma(part[r], d, acc[r]);
  }
}

// R rows of one panel.
template <typename F, int R>
void SuperTile(const MatmulArgs& args, const uint8_t* panel, const QuantRows& x, size_t output,
               float* out) {
  Lanes acc[R];
  Clear(acc);
  const size_t blocks = args.weights.inputs / kQuantBlock;
  for (size_t first = 0; first < blocks; first += kSuperBlocks) {
    if constexpr (F::kBits == 6) {
      AddSuper6<R>(panel, x, first, acc);
    } else {
      AddSuperBlock<F, R>(panel, x, first, acc);
    }
    panel += SuperBytes<F>();
  }
  StoreRows(args, acc, output, out);
}

// All of many rows, each panel's integers put together once. False, and nothing done, where that
// does not pay. Defined in super_unpacked-inl.h.
template <typename F>
bool MultiplyUnpacked(const MatmulArgs& args, size_t first, size_t end);

template <typename F>
struct SuperProduct {
  static bool TryAtOnce(const MatmulArgs& args, size_t first, size_t end) {
    return MultiplyUnpacked<F>(args, first, end);
  }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const size_t inputs = args.weights.inputs;
    const QuantRows x =
        QuantRowsAt(args.packed + row * QuantizedRowBytes(inputs), R, QuantBlocks(inputs));
    for (; first < end; ++first) {
      SuperTile<F, R>(args, args.weights.data + first * args.weights.panel_bytes, x, first * kLanes,
                      out);
    }
  }
};

// Weights of input k of a block, of 32.
template <typename F>
STRATA_INLINE Lanes LoadSuperIntegers(const uint8_t* lines, size_t k) {
  constexpr int kHighBits = kHighBitsOf<F>;
  const int byte = static_cast<int>(k % 4) * 8;
  const auto low = [&] {
    return LoadBits(lines + k / 8 * 64, byte + static_cast<int>(k / 4 % 2) * 4, 15);
  };
  if constexpr (kHighBits == 0) {
    return low();
  } else {
    const int at = static_cast<int>(k / 4) * kHighBits;
    const Lanes high =
        LoadBits(lines + (kNibbleLines<F> + at / 8) * 64, byte + at % 8, (1 << kHighBits) - 1);
    return kNibbleLines<F> == 0 ? high : Fma(high, Set(16.0f), low());
  }
}

// As DequantTile.
template <typename F, int R>
void SuperDequantTile(const MatmulArgs& args, const uint8_t* panel, const float* x, size_t output,
                      float* out) {
  Lanes acc[R];
  Clear(acc);
  const size_t blocks = args.weights.inputs / kQuantBlock;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t i = block % kSuperBlocks;
    const uint8_t* const head = panel + block / kSuperBlocks * SuperBytes<F>();
    const uint8_t* const lines = head + kSuperHeadBytes + i * SuperLineBytes<F>();
    SuperScales scales;
    if constexpr (F::kBits != 6) {
      scales = LoadSuperScales(head, i);
    }
    for (size_t k = 0; k < kQuantBlock; ++k) {
      const Lanes u = LoadSuperIntegers<F>(lines, k);
      Lanes w;
      if constexpr (F::kBits == 6) {
        const Lanes d = Load(reinterpret_cast<const float*>(head));
        w = Mul(Mul(d, LoadHalfScale(head, 2 * i + k / 16)), Sub(u, Set(32.0f)));
      } else {
        w = Fma(scales.s, u, scales.b);
      }
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r] = Fma(Set(x[(block * kQuantBlock + k) * R + r]), w, acc[r]);
      }
    }
  }
  StoreRows(args, acc, output, out);
}

template <typename F>
struct SuperDequantProduct {
  static bool TryAtOnce(const MatmulArgs&, size_t, size_t) { return false; }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    for (; first < end; ++first) {
      SuperDequantTile<F, R>(args, args.weights.data + first * args.weights.panel_bytes,
                             FloatRowsAt(args, row), first * kLanes, out);
    }
  }
};

// The rows of a block, four and then what is left: run.template operator()<N>(first). Where loops
// for each number of rows would be more to compile than they are worth.
template <int R, typename Run>
STRATA_INLINE void ByFewRows(const Run& run) {
  for (int first = 0; first + 4 <= R; first += 4) {
    run.template operator()<4>(first);
  }
  if constexpr (R % 4 != 0) {
    run.template operator()<R % 4>(R / 4 * 4);
  }
}

// All rows at once where the product knows how, else block by block.
template <typename Product>
void MultiplyRows(const MatmulArgs& args, size_t first, size_t end) {
  if (!Product::TryAtOnce(args, first, end)) {
    Multiply<Product>(args, first, end);
  }
}
