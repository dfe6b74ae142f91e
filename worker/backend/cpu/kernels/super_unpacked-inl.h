// Products of super-blocks of six bits and int8 activations of many rows, whose integers are put
// together once. Included after super-inl.h.

// Panels whose integers are put together once for all blocks of rows, where they are many and the
// products take two panels at once.
struct UnpackedArgs : MatmulArgs {
  // Of `panels` from `first` on, [panel][block][word].
  const DotWeights* integers = nullptr;
  size_t first = 0;

  const DotWeights* Integers(size_t panel, size_t block) const {
    return integers + ((panel - first) * QuantBlocks(weights.inputs) + block) * kQuantWords;
  }
};

// The words [kFrom, kEnd) of a block of P panels and the rows [kRow, kRow + N) of R, added to
// `dots`.
template <int R, int kRow, int N, int P, int kFrom, int kEnd>
STRATA_INLINE void DotUnpacked(const DotWeights* const (&integers)[P], const DotWord* words,
                               DotSum (&dots)[P][N]) {
  STRATA_UNROLL
  for (int word = kFrom; word < kEnd; ++word) {
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        dots[p][r] = DotStep(dots[p][r], integers[p][word], words + DotWordAt(word, kRow + r, R));
      }
    }
  }
}

// What SuperTile computes of kSuper6, of P panels from `panel` on and the rows [kRow, kRow + N) of
// R.
template <int R, int kRow, int N, int P>
void UnpackedTile(const UnpackedArgs& args, size_t panel, const QuantRows& x, float* out) {
  Lanes acc[P][N];
  Clear(acc);
  const size_t blocks = args.weights.inputs / kQuantBlock;
  const uint8_t* head = args.weights.data + panel * args.weights.panel_bytes;
  Lanes part[P][N];
  for (size_t block = 0; block < blocks; ++block) {
    const size_t i = block % kSuperBlocks;
    const size_t at = block * R + kRow;
    const DotWord* const words = x.words + block * R * kQuantWords;
    const DotWeights* integers[P];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      integers[p] = args.Integers(panel + p, block);
    }
    DotSum dots[P][N];
    Lanes sums[P][N];
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        dots[p][r] = DotBegin(x.halves[0][at + r]);
      }
    }
    DotUnpacked<R, kRow, N, P, 0, kQuantWords / 2>(integers, words, dots);
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const Lanes c0 = LoadHalfScale(head + p * args.weights.panel_bytes, 2 * i);
      STRATA_UNROLL
      for (int r = 0; r < N; ++r) {
        sums[p][r] = Mul(DotFloats(dots[p][r]), c0);
        dots[p][r] = DotBegin(x.halves[1][at + r]);
      }
    }
    DotUnpacked<R, kRow, N, P, kQuantWords / 2, kQuantWords>(integers, words, dots);
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint8_t* const own = head + p * args.weights.panel_bytes;
      const Lanes c1 = LoadHalfScale(own, 2 * i + 1);
      STRATA_UNROLL
      for (int r = 0; r < N; ++r) {
        sums[p][r] = Fma(DotFloats(dots[p][r]), c1, sums[p][r]);
        const Lanes before = i == 0 ? Set(0.0f) : part[p][r];
        part[p][r] = Fma(sums[p][r], Set(x.scales[at + r]), before);
      }
      if (i + 1 == kSuperBlocks) {
        const Lanes d = Load(reinterpret_cast<const float*>(own));
        STRATA_UNROLL
        for (int r = 0; r < N; ++r) {
          acc[p][r] = Fma(part[p][r], d, acc[p][r]);
        }
      }
    }
    head += i + 1 == kSuperBlocks ? SuperBytes<Super6Format>() : 0;
  }
  StoreTile(args, acc, panel * kLanes, out + kRow * args.out_stride);
}

// The integers of a block, from its line kLine on, in the order of words.
template <typename F, int kLine = 0>
STRATA_INLINE void UnpackBlock(const uint8_t* lines, DotWeights* integers) {
  LoadSuperLine<F, kLine, 0>(lines, &integers[2 * kLine], &integers[2 * kLine + 1]);
  if constexpr (kLine + 1 < 4) {
    UnpackBlock<F, kLine + 1>(lines, integers);
  }
}

struct UnpackedProduct {
  template <int R>
  static void Run(const UnpackedArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const size_t inputs = args.weights.inputs;
    const QuantRows x =
        QuantRowsAt(args.packed + row * QuantizedRowBytes(inputs), R, QuantBlocks(inputs));
    if constexpr (R >= kTiling.dot_panel_rows) {
      constexpr int kHalf = (R + 1) / 2;
      for (; first + 2 <= end; first += 2) {
        UnpackedTile<R, 0, kHalf, 2>(args, first, x, out);
        UnpackedTile<R, kHalf, R - kHalf, 2>(args, first, x, out);
      }
    }
    for (; first < end; ++first) {
      UnpackedTile<R, 0, R, 1>(args, first, x, out);
    }
  }
};

// Of the second cache, most of which is left to activations; one panel of 8,192 inputs.
constexpr size_t kUnpackedBytes = size_t{128} << 10;

template <typename F>
bool MultiplyUnpacked(const MatmulArgs& args, size_t first, size_t end) {
  // Fewer bits are put together faster than they are loaded again.
  if constexpr (F::kBits != 6 || kTiling.dot_panel_rows > kTiling.alone_rows()) {
    return false;
  } else {
    constexpr size_t kWords = kUnpackedBytes / sizeof(DotWeights);
    const size_t panel_words = QuantBlocks(args.weights.inputs) * kQuantWords;
    const uint32_t row_blocks = RowBlocks(args.rows, kBlockRows);
    if (row_blocks == 1 || panel_words > kWords) {
      return false;
    }
    alignas(64) DotWeights integers[kWords];
    const size_t fit = kWords / panel_words;
    const size_t panels = fit < kPanelsInCache ? fit : kPanelsInCache;
    for (; first < end; first += panels) {
      const size_t last = first + panels < end ? first + panels : end;
      DotWeights* to = integers;
      for (size_t panel = first; panel < last; ++panel) {
        const uint8_t* at = args.weights.data + panel * args.weights.panel_bytes;
        for (size_t i = 0; i < panel_words / kQuantWords; ++i) {
          at += i % kSuperBlocks == 0 ? kSuperHeadBytes : 0;
          UnpackBlock<F>(at, to);
          at += SuperLineBytes<F>();
          to += kQuantWords;
        }
      }
      const UnpackedArgs unpacked{args, integers, first};
      for (uint32_t block = 0; block < row_blocks; ++block) {
        MultiplyBlock<UnpackedProduct>(unpacked, RowBlockAt(args.rows, row_blocks, block), first,
                                       last);
      }
    }
    return true;
  }
}
