// Products of quantized weights and int8 activations, written once over a dot product of 16
// outputs. Included after kernels-inl.h, one of the int_dot_*-inl.h and quant_rows-inl.h. A dot
// product gives:
//   DotWord          four quantized activations, as the dot product wants them; MakeDotWord, and
//                    if it is no word of four bytes MakeDotWords
//   kDotOperands     what of them is multiplied
//   DotWeights       16 outputs x 4 inputs; LoadDotWeights of a line of 8 bits
//   DotSum           16 exact int32 sums; DotBegin(n), which begins each with n,
//                    DotStep(sum, weights, word), and DotFloats(sum), exact as |sum| < 2^24
// and for weights of 4 to 6 bits, or int_line_bytes-inl.h after it, as the above or others:
//   NarrowWord, NarrowWeights, NarrowSum  with a DotStep; LoadDotNibbles of a line of 4 bits (low
//                    halves, high halves), to which WithHighBits<bits, at> adds the fifth and
//                    higher ones, which are those from `at` on of a line's bytes
//   CodeTable        16 bytes; LoadCodeTable. LoadDotCodes of a line of 4 bits: the table's bytes
//                    that they point to, as NarrowWeights and as DotWeights
//   NarrowLines(bits)  the lines of 4 bits, 2 words each, that a NarrowSum holds. It goes on from a
//                    DotSum by NarrowBegin(dots), and back to it by NarrowEnd(dots, sum)

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

// What the sum of the block's products begins with so that it is that of q * u where the format is
// affine, else of q * (u - 128); `at` is that of the row and block in x.
template <typename F>
STRATA_INLINE int32_t BlockBegin(const QuantRows& x, size_t at) {
  constexpr bool kLess = kDotOperands != DotOperands::kUnsigned;
  constexpr bool kWantsLess = !F::kAffine;
  int32_t begin = 0;
  if constexpr (F::kBits == 8 && kFlipped) {
    begin = x.flipped[at];
  }
  if constexpr (F::kBits == 8 && kLess != kWantsLess) {
    begin += kLess ? -x.offsets[at] : x.offsets[at];
  }
  return begin;
}

// How far ahead R rows prefetch weights of that many bits; 0: not at all.
template <int R>
constexpr size_t PrefetchDistance(int bits) {
  const int unprefetched =
      bits == 4 ? kTiling.prefetching.unprefetched_rows_4 : kTiling.prefetching.unprefetched_rows_8;
  const int ahead = bits == 4 ? kTiling.prefetching.bytes_4 : kTiling.prefetching.bytes;
  return R > unprefetched ? ahead : 0;
}

// What each line of integers prefetches, see Prefetching::line_bytes.
template <bool kCached = false>
STRATA_INLINE void PrefetchByLine(const uint8_t* line) {
  if constexpr (kTiling.prefetching.line_bytes != 0 && !kCached) {
    // Beyond the last panel too, so it is no pointer into it.
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) +
                                                     kTiling.prefetching.line_bytes));
  }
}

// What stands between the lines of integers is prefetched too: where hardware was not left to
// follow the stream, each line left out is waited for.
template <size_t kAhead>
STRATA_INLINE void PrefetchScales(const uint8_t* scales, size_t bytes) {
  if constexpr (kAhead != 0) {
    for (size_t at = 0; at < bytes; at += 64) {
      PrefetchWeights(scales + kAhead + at);
    }
  }
}

// Whether N of R rows, which are half of them (see QuantTiles), prefetch the next pair of panels.
template <int R, int N>
constexpr bool kPrefetchesPair = (N != R) && kTiling.prefetching.pairs;

// How far ahead rows from `kFrom` on prefetch the weights that they read themselves. kCached, here
// and below: InTurnArgs::cached.
template <int R, int kFrom, int N, bool kCached>
constexpr size_t AheadOfRows(int bits) {
  return kFrom != 0 || kCached || kPrefetchesPair<R, N> ? 0 : PrefetchDistance<R>(bits);
}

// Of how many lines of each of P panels that N of R rows read one may prefetch one of the next
// panels; 0: none does. In turn ask as many rows as the smaller of two blocks may have, or more.
template <int R, int N, int P, bool kCached>
constexpr size_t PrefetchingLines() {
  constexpr bool kInTurn =
      kTiling.prefetching.in_turn && !kCached && R >= (kTiling.alone_rows() + 1) / 2;
  static_assert(!kInTurn || kPrefetchingInTurn % P == 0);
  return kPrefetchesPair<R, N> ? 1 : kInTurn ? kPrefetchingInTurn / P : 0;
}

// Which of the lines from one on are prefetched in turn, a bit each: of each page every third, the
// first among them. Hardware fetches the others itself; all of them keep as many of the first
// cache's buffers busy, which what is read here waits for. Of every second, or of three in eight,
// it does not, see docs/TUNING.md.
STRATA_INLINE uint64_t PrefetchedInTurn(const uint8_t* line) {
  constexpr uint64_t kEveryThird = 0x9249249249249249;  // Of a page's 64.
  const uint64_t at = reinterpret_cast<uintptr_t>(line) / 64 % 64;
  return kEveryThird >> at | kEveryThird << (64 - at) % 64;
}

// Prefetches the next panels, by a few lines in a row that are read here.
template <int R, int N, int P, bool kCached>
class NextPrefetcher {
 public:
  // `prefetch`: where what the first of the lines prefetches belongs.
  STRATA_INLINE explicit NextPrefetcher(const uint8_t* prefetch)
      : prefetch_(prefetch),
        due_(kLines == 0             ? 0
             : kPrefetchesPair<R, N> ? ~uint64_t{0}
                                     : PrefetchedInTurn(prefetch)) {}

  // By the line that is `at` bytes behind the first.
  STRATA_INLINE void By(size_t at) const {
    if constexpr (kLines != 0) {
      if (at % (kLines * 64) == 0 && (due_ >> at / kLines / 64 & 1) != 0) {
        __builtin_prefetch(prefetch_ + at / kLines, 0, 2);  // More than the first cache holds.
      }
    }
  }

 private:
  static constexpr size_t kLines = PrefetchingLines<R, N, P, kCached>();
  const uint8_t* prefetch_;
  uint64_t due_;
};

// One block of 32 inputs of P panels, `stride` bytes from one to the next, and N rows of R from
// `kFrom` on, added to `dots`. `beyond`: what all panels but the last prefetch is so much further
// away. `prefetch`: see NextPrefetcher.
template <typename F, int R, int kFrom, int N, int P, bool kCached>
STRATA_INLINE void DotBlock(const uint8_t* lines, size_t stride, size_t beyond,
                            const DotWord* words, const uint8_t* prefetch, DotSum (&dots)[P][N]) {
  const NextPrefetcher<R, N, P, kCached> next(prefetch);
  STRATA_UNROLL
  for (int line = 0; line < 8; ++line) {
    next.By(line * 64);
    DotWeights weights[P];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint8_t* const at = lines + p * stride + line * 64;
      PrefetchByLine<kCached>(at);
      if constexpr (AheadOfRows<R, kFrom, N, kCached>(F::kBits) != 0) {
        PrefetchWeights(at + AheadOfRows<R, kFrom, N, kCached>(F::kBits) +
                        (p < P - 1 ? beyond : 0));
      }
      weights[p] = LoadDotWeights(at);
    }
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        dots[p][r] = DotStep(dots[p][r], weights[p], words + DotWordAt(line, kFrom + r, R));
      }
    }
  }
}

// The same of weights of 4 bits.
template <typename F, int R, int kFrom, int N, int P, bool kCached>
STRATA_INLINE void DotNibbleBlock(const uint8_t* lines, size_t stride, size_t beyond,
                                  const NarrowWord* words, const uint8_t* prefetch,
                                  DotSum (&dots)[P][N]) {
  static_assert(NarrowLines(4) == 4);
  NarrowSum sums[P][N];
  STRATA_UNROLL
  for (int r = 0; r < N; ++r) {
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      sums[p][r] = NarrowBegin(dots[p][r]);
    }
  }
  const NextPrefetcher<R, N, P, kCached> next(prefetch);
  STRATA_UNROLL
  for (int line = 0; line < 4; ++line) {
    next.By(line * 64);
    NarrowWeights low[P];
    NarrowWeights high[P];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint8_t* const at = lines + p * stride + line * 64;
      PrefetchByLine<kCached>(at);
      if constexpr (AheadOfRows<R, kFrom, N, kCached>(F::kBits) != 0) {
        PrefetchWeights(at + AheadOfRows<R, kFrom, N, kCached>(F::kBits) +
                        (p < P - 1 ? beyond : 0));
      }
      LoadDotNibbles(at, &low[p], &high[p]);
    }
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        sums[p][r] = DotStep(sums[p][r], low[p], words + DotWordAt(2 * line, kFrom + r, R));
      }
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        sums[p][r] = DotStep(sums[p][r], high[p], words + DotWordAt(2 * line + 1, kFrom + r, R));
      }
    }
  }
  STRATA_UNROLL
  for (int r = 0; r < N; ++r) {
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      dots[p][r] = NarrowEnd(dots[p][r], sums[p][r]);
    }
  }
}

// The chain over a group's blocks: part := its next link, of a block's exact sum; `at` is that of
// the row and block in x.
STRATA_INLINE Lanes AddBlock(const QuantRows& x, size_t at, const DotSum& sum, Lanes part) {
  return Fma(DotFloats(sum), Set(x.scales[at]), part);
}

// The same for all the rows and panels of DotBlock: the products of a block of x, as floats, added
// to `part`.
template <typename F, int R, int kFrom, int N, int P, bool kCached>
STRATA_INLINE void AddProducts(const QuantRows& x, size_t block, const uint8_t* lines,
                               size_t stride, size_t beyond, const uint8_t* prefetch,
                               Lanes (&part)[P][N]) {
  DotSum dots[P][N];
  STRATA_UNROLL
  for (int r = 0; r < N; ++r) {
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      dots[p][r] = DotBegin(BlockBegin<F>(x, block * R + kFrom + r));
    }
  }
  const size_t word = block * kQuantWords * R;
  if constexpr (F::kBits == 8) {
    DotBlock<F, R, kFrom, N, P, kCached>(lines, stride, beyond, x.words + word, prefetch, dots);
  } else {
    DotNibbleBlock<F, R, kFrom, N, P, kCached>(lines, stride, beyond, x.narrow_words + word,
                                               prefetch, dots);
  }
  STRATA_UNROLL
  for (int r = 0; r < N; ++r) {
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      part[p][r] = AddBlock(x, block * R + kFrom + r, dots[p][r], part[p][r]);
    }
  }
}

// The chain over groups: acc := its next link, of the chain over the blocks [first, end) of row r
// of R.
template <typename F, int R>
STRATA_INLINE Lanes AddGroup(const QuantRows& x, size_t r, size_t first, size_t end, const Lanes& s,
                             const Lanes& b, const Lanes& part, Lanes acc) {
  acc = Fma(part, s, acc);
  if constexpr (F::kAffine) {
    Lanes sum = Set(x.sums[first * R + r]);
    for (size_t block = first + 1; block < end; ++block) {
      sum = Add(sum, Set(x.sums[block * R + r]));
    }
    acc = Fma(sum, b, acc);
  }
  return acc;
}

// The rows [kFrom, kFrom + N) of R, and P panels. With few rows as many as streams of memory are
// read best (see Prefetching): blocks do not wait for each other, so that as many are on their way.
template <typename F, int R, int kFrom, int N, int P, bool kCached>
void QuantTile(const InTurnArgs& args, const uint8_t* panel, const QuantRows& x, size_t output,
               float* out) {
  const size_t stride = args.weights.panel_bytes;
  const uint8_t* const panel_end = panel + stride;
  const size_t scale_bytes = ScaleBytes(args);
  const size_t head_bytes = (F::kAffine ? 2 : 1) * scale_bytes;
  // Of the next panels; where there is nothing to prefetch, what is read here.
  const uint8_t* prefetch = panel;
  if constexpr (kPrefetchesPair<R, N>) {
    prefetch += (kFrom == 0 ? P : P + 1) * stride;  // Each half prefetches one of the next two.
  } else if (args.prefetch != nullptr) {
    prefetch = args.prefetch + (panel - args.from) / kPrefetchingInTurn;
  }
  const auto advance = [&](size_t bytes) {
    panel += bytes;
    if constexpr (PrefetchingLines<R, N, P, kCached>() != 0) {
      prefetch += bytes / PrefetchingLines<R, N, P, kCached>();
    }
  };
  constexpr size_t kBlockBytes = kQuantBlock * kLanes * F::kBits / 8;
  Lanes acc[P][N];
  Clear(acc);
  const size_t blocks = QuantBlocks(args.weights.inputs);
  const size_t group_blocks = args.weights.group / kQuantBlock;
  for (size_t first = 0; first < blocks; first += group_blocks) {
    const uint8_t* const scales = panel;
    // At a panel's end what is ahead is the beginning of the one behind it. Unless it is the last
    // of the P that one is being read itself, and those of the next P are to be prefetched.
    const size_t beyond =
        panel + AheadOfRows<R, kFrom, N, kCached>(F::kBits) < panel_end ? 0 : P * stride;
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      PrefetchScales<AheadOfRows<R, kFrom, N, kCached>(F::kBits)>(
          scales + p * stride + (p < P - 1 ? beyond : 0), head_bytes);
    }
    const NextPrefetcher<R, N, P, kCached> next(prefetch);
    for (size_t at = 0; at < head_bytes; at += 64) {
      next.By(at);
    }
    advance(head_bytes);
    const size_t end = first + group_blocks < blocks ? first + group_blocks : blocks;
    Lanes part[P][N];
    Clear(part);
    size_t block = first;
    // One or two rows are bound by memory, not by instructions.
    if (kTiling.pairs_of_blocks && N > 2 && end - first == 2) {
      AddProducts<F, R, kFrom, N, P, kCached>(x, block, panel, stride, beyond, prefetch, part);
      advance(kBlockBytes);
      AddProducts<F, R, kFrom, N, P, kCached>(x, block + 1, panel, stride, beyond, prefetch, part);
      advance(kBlockBytes);
      block = end;
    }
    for (; block < end; ++block) {
      AddProducts<F, R, kFrom, N, P, kCached>(x, block, panel, stride, beyond, prefetch, part);
      advance(kBlockBytes);
    }
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint8_t* const at = scales + p * stride;
      const Lanes s = LoadScales(args.weights.scale_dtype, at);
      const Lanes b =
          F::kAffine ? LoadScales(args.weights.scale_dtype, at + scale_bytes) : Set(0.0f);
      STRATA_UNROLL
      for (int r = 0; r < N; ++r) {
        acc[p][r] = AddGroup<F, R>(x, kFrom + r, first, end, s, b, part[p][r], acc[p][r]);
      }
    }
  }
  StoreTile(args, acc, output, out + kFrom * args.out_stride);
}

// The same of one panel, see Tiling::tiles_apart.
template <typename F, int R, int kFrom, int N, bool kCached>
[[gnu::noinline]] void QuantTileApart(const InTurnArgs& args, const uint8_t* panel,
                                      const QuantRows& x, size_t output, float* out) {
  QuantTile<F, R, kFrom, N, 1, kCached>(args, panel, x, output, out);
}

// Either of them.
template <typename F, int R, int kFrom, int N, bool kCached>
STRATA_INLINE void OnePanelTile(const InTurnArgs& args, const uint8_t* panel, const QuantRows& x,
                                size_t output, float* out) {
  if constexpr (kTiling.tiles_apart) {
    QuantTileApart<F, R, kFrom, N, kCached>(args, panel, x, output, out);
  } else {
    QuantTile<F, R, kFrom, N, 1, kCached>(args, panel, x, output, out);
  }
}

// Blocks of many rows by halves: with two panels each word of activations that is loaded serves
// both, and all sums stay in registers; with one (Tiling::half_rows) the second half reads what the
// first has just read.
template <typename F, int R, bool kCached>
void QuantTiles(const InTurnArgs& args, const QuantRows& x, size_t first, size_t end, float* out) {
  const size_t stride = args.weights.panel_bytes;
  if constexpr (R >= (F::kBits == 4 ? kTiling.dot_panel_rows_4 : kTiling.dot_panel_rows)) {
    constexpr int kHalf = (R + 1) / 2;
    const bool one_panel = F::kBits == 8 && args.rows == R && R < kTiling.alone_panel_rows;
    for (; !one_panel && first + 2 <= end; first += 2) {
      const uint8_t* const panel = args.weights.data + first * stride;
      QuantTile<F, R, 0, kHalf, 2, kCached>(args, panel, x, first * kLanes, out);
      QuantTile<F, R, kHalf, R - kHalf, 2, kCached>(args, panel, x, first * kLanes, out);
    }
  }
  if constexpr (kTiling.prefetching.quant_panels == 2 && R <= kFewRows &&
                2 * R <= kTiling.register_lanes) {
    for (; first + 2 <= end; first += 2) {
      QuantTile<F, R, 0, R, 2, kCached>(args, args.weights.data + first * stride, x, first * kLanes,
                                        out);
    }
  }
  if constexpr (R >= kTiling.half_rows) {
    constexpr int kHalf = (R + 1) / 2;
    for (; args.rows > R && first < end; ++first) {
      const uint8_t* const panel = args.weights.data + first * stride;
      OnePanelTile<F, R, 0, kHalf, kCached>(args, panel, x, first * kLanes, out);
      OnePanelTile<F, R, kHalf, R - kHalf, true>(args, panel, x, first * kLanes, out);
    }
  }
  for (; first < end; ++first) {
    OnePanelTile<F, R, 0, R, kCached>(args, args.weights.data + first * stride, x, first * kLanes,
                                      out);
  }
}

// All rows by matrix tiles; false, and nothing done, where they do not pay. Defined where there are
// any, in quant_tiles-inl.h.
template <typename Args>
bool MultiplyTiles(const Args& args, size_t first, size_t end);
// After them.
template <typename Args>
void EndTiles(const Args& args);

// The same by tables of flipped weights. Defined where Tiling::table_rows says that there are any,
// in quant_flipped-inl.h.
template <typename F, typename Args>
bool MultiplyByTables(const Args& args, size_t first, size_t end);

template <typename F>
struct QuantProduct {
  static bool TryAtOnce(const MatmulArgs& args, size_t first, size_t end) {
    if constexpr (kTiling.tile_rows > 0) {
      return MultiplyTiles(args, first, end);
    } else if constexpr (F::kBits == 8 && kTiling.table_rows > 0) {
      return MultiplyByTables<F>(args, first, end);
    } else {
      return false;
    }
  }
  template <int R>
  static void Run(const InTurnArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const size_t inputs = args.weights.inputs;
    const QuantRows x =
        QuantRowsAt(args.packed + row * QuantizedRowBytes(inputs), R, QuantBlocks(inputs));
    if constexpr (kTiling.prefetching.in_turn) {
      if (args.cached) {
        QuantTiles<F, R, true>(args, x, first, end, out);
        return;
      }
    }
    QuantTiles<F, R, false>(args, x, first, end, out);
  }
};
template <typename F>
constexpr bool kPrefetchesInTurn<QuantProduct<F>> = kTiling.prefetching.in_turn;
template <typename F>
constexpr size_t kManyBlocksBytes<QuantProduct<F>> = kTiling.many_blocks_bytes;

// The same weights and float activations: each weight is put together, then used as one stored so.
template <typename F, int R>
void DequantTile(const MatmulArgs& args, const uint8_t* panel, const float* x, size_t output,
                 float* out) {
  const size_t scale_bytes = ScaleBytes(args);
  constexpr size_t kPerLine = 4 * 8 / F::kBits;
  Lanes acc[R];
  Clear(acc);
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
  StoreRows(args, acc, output, out);
}

template <typename F>
struct DequantProduct {
  static bool TryAtOnce(const MatmulArgs&, size_t, size_t) { return false; }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    for (; first < end; ++first) {
      DequantTile<F, R>(args, args.weights.data + first * args.weights.panel_bytes,
                        FloatRowsAt(args, row), first * kLanes, out);
    }
  }
};
