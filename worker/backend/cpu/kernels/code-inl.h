// Products of 4-bit codes (see PanelView), with int8 and with float activations. Included after
// super-inl.h. Matrix tiles do not take them.

// kHalves: scales are for 16 inputs, and factors for rows. kTwo: numbers of the book have `low`.
// kNarrow: they fit where weights of five bits do, which only operands that are flipped tell from
// others; elsewhere there are fewer loops to compile.
template <bool kHalves_, bool kTwo_, bool kNarrow_>
struct CodeFormat {
  static constexpr bool kHalves = kHalves_;
  static constexpr bool kTwo = kTwo_;
  static constexpr bool kNarrow = kNarrow_ && kNarrowWords;
};
using NarrowCodes = CodeFormat<false, false, kNarrowWords>;
using WideCodes = CodeFormat<false, false, false>;
using HalvesOfCodes = CodeFormat<true, false, kNarrowWords>;
using TwoOfCodes = CodeFormat<false, true, false>;

// What is added to a book's numbers so that they are operands of the dot product.
template <typename F>
constexpr int kCodeBias = kDotOperands == DotOperands::kSigned ? 0
                          : F::kNarrow                         ? 16
                                                               : 128;

template <typename F>
STRATA_INLINE CodeTable MakeCodeTable(const std::array<int8_t, kCodes>& numbers) {
  uint8_t bytes[kCodes];
  for (size_t i = 0; i < kCodes; ++i) {
    bytes[i] = static_cast<uint8_t>(numbers[i] + kCodeBias<F>);
  }
  return LoadCodeTable(bytes);
}

// What the sum of a block's products begins with so that it is that of q * number, and of a half's;
// `at` is that of the row and block in x.
template <typename F>
STRATA_INLINE int32_t CodesBegin(const QuantRows& x, size_t at) {
  if constexpr (kCodeBias<F> == 0) {
    return 0;
  } else if constexpr (F::kNarrow) {
    return x.offsets[at] >> 3;
  } else if constexpr (kFlipped) {
    return x.flipped[at];
  } else {
    return x.offsets[at];
  }
}
template <typename F>
STRATA_INLINE int32_t CodesBeginHalf(const QuantRows& x, size_t half, size_t at) {
  static_assert(F::kNarrow || !kFlipped);
  if constexpr (kCodeBias<F> == 0) {
    return 0;
  } else {
    return F::kNarrow ? x.halves[half][at] >> 1 : x.halves[half][at] * 4;
  }
}

// P panels, `stride` bytes from one to the next. kAhead: the lines so many bytes ahead are
// prefetched, and `beyond` further those of all panels but the last; 0: none are.
template <int P, size_t kAhead>
struct CodeLines {
  const uint8_t* at;
  size_t stride;
  size_t beyond;

  template <typename Weights>
  STRATA_INLINE void Load(int panel, int line, const CodeTable& table, Weights* low,
                          Weights* high) const {
    const uint8_t* const from = at + panel * stride + line * 64;
    if constexpr (kAhead != 0) {
      PrefetchByLine(from);
      PrefetchWeights(from + kAhead + (panel < P - 1 ? beyond : 0));
    }
    LoadDotCodes(from, table, low, high);
  }
};

// The lines [kFrom, kEnd) of a block and R rows, added to `sums`.
template <typename Weights, int R, int P, int kFrom, int kEnd, typename Lines, typename Word,
          typename Sum>
STRATA_INLINE void CodeSteps(const Lines& lines, const CodeTable& table, const Word* words,
                             Sum (&sums)[P][R]) {
  STRATA_UNROLL
  for (int line = kFrom; line < kEnd; ++line) {
    Weights low[P];
    Weights high[P];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      lines.Load(p, line, table, &low[p], &high[p]);
    }
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        sums[p][r] = DotStep(sums[p][r], low[p], words + DotWordAt(2 * line, r, R));
      }
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        sums[p][r] = DotStep(sums[p][r], high[p], words + DotWordAt(2 * line + 1, r, R));
      }
    }
  }
}

// The same, added to `dots`; `word` is the block's first in x.
template <typename F, int R, int P, int kFrom, int kEnd, typename Lines>
STRATA_INLINE void DotCodes(const Lines& lines, const CodeTable& table, const QuantRows& x,
                            size_t word, DotSum (&dots)[P][R]) {
  if constexpr (F::kNarrow) {
    constexpr int kLast = kFrom + NarrowLines(5);
    static_assert(kLast <= kEnd);
    NarrowSum sums[P][R];
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        sums[p][r] = NarrowBegin(dots[p][r]);
      }
    }
    CodeSteps<NarrowWeights, R, P, kFrom, kLast>(lines, table, x.narrow_words + word, sums);
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        dots[p][r] = NarrowEnd(dots[p][r], sums[p][r]);
      }
    }
    if constexpr (kLast < kEnd) {
      DotCodes<F, R, P, kLast, kEnd>(lines, table, x, word, dots);
    }
  } else {
    CodeSteps<DotWeights, R, P, kFrom, kEnd>(lines, table, x.words + word, dots);
  }
}

// The scale of the 32 inputs of a group's block; `head`: the group's.
STRATA_INLINE Lanes LoadCodeScale(CodeScales scales, const uint8_t* head, size_t block) {
  switch (scales) {
    case CodeScales::kExponent:
      return LoadExponents(head + block * kLanes);
    case CodeScales::kHalf:
      return Load(reinterpret_cast<const F16*>(head) + block * kLanes);
    case CodeScales::kSuper: {
      const int8_t* const factors = reinterpret_cast<const int8_t*>(head + kLanes * sizeof(float));
      return Mul(Load(reinterpret_cast<const float*>(head)), Load(factors + block * kLanes));
    }
    default:
      return Load(reinterpret_cast<const float*>(head) + block / 2 * kLanes);
  }
}

struct CodeTables {
  CodeTable high;
  CodeTable low;  // If there is one.
};

// A block of P panels and R rows: the chains' next links.
template <typename F, int R, int P, typename Lines>
STRATA_INLINE void AddCodes(const CodeTables& tables, CodeScales scales, const Lines& lines,
                            const uint8_t* head, size_t in_group, const QuantRows& x, size_t block,
                            Lanes (&acc)[P][R]) {
  const size_t at = block * R;
  const size_t word = at * kQuantWords;
  const auto each = [](const auto& step) __attribute__((always_inline)) {
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        step(p, r);
      }
    }
  };
  DotSum dots[P][R];
  if constexpr (F::kHalves) {
    Lanes sums[P][R];
    each([&](int p, int r) { dots[p][r] = DotBegin(CodesBeginHalf<F>(x, 0, at + r)); });
    DotCodes<F, R, P, 0, 2>(lines, tables.high, x, word, dots);
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const Lanes c = LoadFloats8(head + p * lines.stride + 2 * in_group * kLanes);
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        sums[p][r] = Mul(DotFloats(dots[p][r]), c);
      }
    }
    each([&](int p, int r) { dots[p][r] = DotBegin(CodesBeginHalf<F>(x, 1, at + r)); });
    DotCodes<F, R, P, 2, 4>(lines, tables.high, x, word, dots);
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const Lanes c = LoadFloats8(head + p * lines.stride + (2 * in_group + 1) * kLanes);
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        const Lanes sum = Fma(DotFloats(dots[p][r]), c, sums[p][r]);
        acc[p][r] = Fma(sum, Set(x.scales[at + r]), acc[p][r]);
      }
    }
    return;
  }
  each([&](int p, int r) { dots[p][r] = DotBegin(CodesBegin<F>(x, at + r)); });
  DotCodes<F, R, P, 0, 4>(lines, tables.high, x, word, dots);
  Lanes sums[P][R];
  each([&](int p, int r) { sums[p][r] = DotFloats(dots[p][r]); });
  if constexpr (F::kTwo) {
    // What was prefetched is there.
    const CodeLines<P, 0> again{lines.at, lines.stride, 0};
    each([&](int p, int r) { dots[p][r] = DotBegin(CodesBegin<F>(x, at + r)); });
    DotCodes<F, R, P, 0, 4>(again, tables.low, x, word, dots);
    each([&](int p, int r) { sums[p][r] = Fma(sums[p][r], Set(256.0f), DotFloats(dots[p][r])); });
  }
  STRATA_UNROLL
  for (int p = 0; p < P; ++p) {
    const Lanes s = LoadCodeScale(scales, head + p * lines.stride, in_group);
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      const Lanes part = Fma(sums[p][r], Set(x.scales[at + r]), Set(0.0f));
      acc[p][r] = Fma(part, s, acc[p][r]);
    }
  }
}

// Bytes of a block's lines.
constexpr size_t kCodeBlockBytes = kQuantBlock * kLanes / 2;
constexpr size_t kCodeBlocks = kCodeGroup / kQuantBlock;

// R rows of P panels.
template <typename F, int R, int P>
void CodeTile(const MatmulArgs& args, const CodeTables& tables, const uint8_t* panel,
              const QuantRows& x, size_t output, float* out) {
  constexpr size_t kAhead = PrefetchDistance<R>(4);
  const CodeBook& book = BookOf(args.weights.format);
  const CodeScales scales = book.scales;
  const size_t head_bytes = CodeHeadBytes(scales);
  const size_t stride = args.weights.panel_bytes;
  const uint8_t* const panel_end = panel + stride;
  const uint8_t* at = panel + CodeRowBytes(scales);
  Lanes acc[P][R];
  Clear(acc);
  const size_t blocks = args.weights.inputs / kQuantBlock;
  for (size_t first = 0; first < blocks; first += kCodeBlocks) {
    const uint8_t* const head = at;
    // See QuantTile.
    const size_t beyond = at + kAhead < panel_end ? 0 : P * stride;
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      PrefetchScales<kAhead>(head + p * stride + (p < P - 1 ? beyond : 0), head_bytes);
    }
    at += head_bytes;
    const size_t count = blocks - first < kCodeBlocks ? blocks - first : kCodeBlocks;
    for (size_t i = 0; i < count; ++i) {
      const CodeLines<P, kAhead> lines{at, stride, beyond};
      AddCodes<F, R, P>(tables, scales, lines, head, i, x, first + i, acc);
      at += kCodeBlockBytes;
    }
  }
  STRATA_UNROLL
  for (int p = 0; p < P; ++p) {
    Lanes factor = Set(book.unit);
    if constexpr (F::kHalves) {
      const Lanes of_row = Load(reinterpret_cast<const float*>(panel + p * stride));
      factor = book.divides ? Div(factor, of_row) : Mul(factor, of_row);
    }
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      acc[p][r] = Mul(acc[p][r], factor);
    }
  }
  StoreTile(args, acc, output, out);
}

// So few rows read two panels at once where that is faster.
constexpr int kTwoCodePanels = 2;

template <typename F>
struct CodeProduct {
  static bool TryAtOnce(const MatmulArgs&, size_t, size_t) { return false; }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const size_t inputs = args.weights.inputs;
    const QuantRows x =
        QuantRowsAt(args.packed + row * QuantizedRowBytes(inputs), R, QuantBlocks(inputs));
    const CodeBook& book = BookOf(args.weights.format);
    const CodeTable high = MakeCodeTable<F>(book.high);
    const CodeTables tables{high, F::kTwo ? MakeCodeTable<F>(book.low) : high};
    const auto panel = [&args](size_t at) {
      return args.weights.data + at * args.weights.panel_bytes;
    };
    if constexpr (kTiling.prefetching.quant_panels == 2 && R <= kTwoCodePanels) {
      for (; first + 2 <= end; first += 2) {
        CodeTile<F, R, 2>(args, tables, panel(first), x, first * kLanes, out);
      }
    }
    for (; first < end; ++first) {
      CodeTile<F, R, 1>(args, tables, panel(first), x, first * kLanes, out);
    }
  }
};

STRATA_INLINE Lanes RoundCodes(CodeRounding rounding, const Lanes& w) {
  switch (rounding) {
    case CodeRounding::kBfloat16:
      return RoundBf16(w);
    case CodeRounding::kHalf:
      return RoundF16(w);
    default:
      return w;
  }
}

// As DequantTile, of all formats; N of `rows` rows.
template <int N>
[[gnu::noinline]] void CodeDequantTile(const MatmulArgs& args, const uint8_t* panel, const float* x,
                                       size_t rows, size_t output, float* out) {
  const CodeBook& book = BookOf(args.weights.format);
  const bool halves = book.scales == CodeScales::kFloat8Halves;
  Lanes acc[N];
  Clear(acc);
  const size_t head_bytes = CodeHeadBytes(book.scales);
  const Lanes of_row = halves ? Load(reinterpret_cast<const float*>(panel)) : Set(1.0f);
  const CodeRounding rounding = book.scales == CodeScales::kFloat
                                    ? *reinterpret_cast<const CodeRounding*>(panel)
                                    : book.rounding;
  const uint8_t* lines = panel + CodeRowBytes(book.scales);
  const uint8_t* head = lines;
  const size_t blocks = args.weights.inputs / kQuantBlock;
  for (size_t block = 0; block < blocks; ++block, lines += kCodeBlockBytes) {
    const size_t in_group = block % kCodeBlocks;
    if (in_group == 0) {
      head = lines;
      lines += head_bytes;
    }
    Lanes s = Set(0.0f);
    for (size_t k = 0; k < kQuantBlock; ++k) {
      if (halves && k % 16 == 0) {
        const Lanes c = LoadFloats8(head + (2 * in_group + k / 16) * kLanes);
        s = book.divides ? Div(c, of_row) : Mul(of_row, c);
      } else if (k == 0) {
        s = LoadCodeScale(book.scales, head, in_group);
      }
      const int shift = static_cast<int>(k % 4 * 8 + k / 4 % 2 * 4);
      const Lanes w =
          RoundCodes(rounding, Mul(s, LookUpBits(book.values.data(), lines + k / 8 * 64, shift)));
      STRATA_UNROLL
      for (int r = 0; r < N; ++r) {
        acc[r] = Fma(Set(x[(block * kQuantBlock + k) * rows + r]), w, acc[r]);
      }
    }
  }
  StoreRows(args, acc, output, out);
}

struct CodeDequantProduct {
  static bool TryAtOnce(const MatmulArgs&, size_t, size_t) { return false; }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    for (; first < end; ++first) {
      const uint8_t* const panel = args.weights.data + first * args.weights.panel_bytes;
      ByFewRows<R>([&]<int N>(int from) {
        CodeDequantTile<N>(args, panel, FloatRowsAt(args, row) + from, R, first * kLanes,
                           out + from * args.out_stride);
      });
    }
  }
};
