// Products of ggml's super-blocks of two bits (see PanelView), with int8 and with float
// activations. Included after super-inl.h.

struct Super2Format {
  static constexpr int kBits = 2;
};

// One super-block of a panel and N of `rows` rows, from `from` on: the chains' next links. `first`
// is its first block in x. Of each half the sums of 16 q u, and of 32 q, are below 2^20, so that
// those times c or m and what they add up to are exact; 16 and 32 are taken off again with d and e.
template <int N>
STRATA_INLINE void AddSuper2(const uint8_t* head, const QuantRows& x, size_t rows, size_t from,
                             size_t first, Lanes (&acc)[N]) {
  PrefetchScales<PrefetchDistance<N>(8)>(head, kSuperHeadBytes);
  const uint8_t* lines = head + kSuperHeadBytes;
  Lanes part[N];
  Lanes minus[N];
  Clear(part);
  Clear(minus);
  for (size_t i = 0; i < kSuperBlocks; ++i) {
    const size_t block = (first + i) * rows;
    const size_t at = block + from;
    const NarrowWord* const words = x.narrow_words + block * kQuantWords + DotWordAt(0, from, rows);
    const uint8_t* const factors = head + 64 + 2 * i * kLanes;
    DotSum dots[N];
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      dots[r] = DotBegin(0);
    }
    DotLines<Super2Format, N, 0, 2>(lines, words, rows, dots);
    Lanes sums[N];
    const Lanes c0 = LoadHalfBytes(factors, 0);
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      sums[r] = Mul(DotFloats(dots[r]), c0);
      dots[r] = DotBegin(0);
    }
    DotLines<Super2Format, N, 2, 4>(lines, words, rows, dots);
    const Lanes c1 = LoadHalfBytes(factors + kLanes, 0);
    const Lanes m0 = LoadHalfBytes(factors, 4);
    const Lanes m1 = LoadHalfBytes(factors + kLanes, 4);
    STRATA_UNROLL
    for (int r = 0; r < N; ++r) {
      const Lanes scale = Set(x.scales[at + r]);
      part[r] = Fma(Fma(DotFloats(dots[r]), c1, sums[r]), scale, part[r]);
      const Lanes first_half = Mul(Set(static_cast<float>(x.halves[0][at + r])), m0);
      const Lanes both = Fma(Set(static_cast<float>(x.halves[1][at + r])), m1, first_half);
      minus[r] = Fma(both, scale, minus[r]);
    }
    lines += SuperLineBytes<Super2Format>();
  }
  const F16* const scales = reinterpret_cast<const F16*>(head);
  const Lanes d = Mul(Load(scales), Set(1.0f / 16));
  const Lanes e = Mul(Load(scales + kLanes), Set(1.0f / 32));
  STRATA_UNROLL
  for (int r = 0; r < N; ++r) {
    acc[r] = Fma(part[r], d, acc[r]);
    acc[r] = Fma(minus[r], e, acc[r]);
  }
}

// N of `rows` rows of one panel.
template <int N>
[[gnu::noinline]] void Super2Tile(const MatmulArgs& args, const uint8_t* panel, const QuantRows& x,
                                  size_t rows, size_t from, size_t output, float* out) {
  Lanes acc[N];
  Clear(acc);
  const size_t blocks = args.weights.inputs / kQuantBlock;
  for (size_t first = 0; first < blocks; first += kSuperBlocks) {
    AddSuper2<N>(panel, x, rows, from, first, acc);
    panel += SuperBytes<Super2Format>();
  }
  StoreRows(args, acc, output, out);
}

struct Super2Product {
  static bool TryAtOnce(const MatmulArgs&, size_t, size_t) { return false; }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const size_t inputs = args.weights.inputs;
    const QuantRows x =
        QuantRowsAt(args.packed + row * QuantizedRowBytes(inputs), R, QuantBlocks(inputs));
    for (; first < end; ++first) {
      const uint8_t* const panel = args.weights.data + first * args.weights.panel_bytes;
      ByFewRows<R>([&]<int N>(int from) {
        Super2Tile<N>(args, panel, x, R, from, first * kLanes, out + from * args.out_stride);
      });
    }
  }
};

// Scale and bias of 16 inputs.
STRATA_INLINE SuperScales LoadSuper2Scales(const uint8_t* head, size_t half) {
  const F16* const d = reinterpret_cast<const F16*>(head);
  const uint8_t* const factors = head + 64 + half * kLanes;
  const Lanes minus = Mul(Load(d + kLanes), LoadHalfBytes(factors, 4));
  return {Mul(Load(d), LoadHalfBytes(factors, 0)), Mul(Set(-1.0f), minus)};
}

// As DequantTile.
template <int N>
[[gnu::noinline]] void Super2DequantTile(const MatmulArgs& args, const uint8_t* panel,
                                         const float* x, size_t rows, size_t output, float* out) {
  Lanes acc[N];
  Clear(acc);
  const size_t blocks = args.weights.inputs / kQuantBlock;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t i = block % kSuperBlocks;
    const uint8_t* const head = panel + block / kSuperBlocks * SuperBytes<Super2Format>();
    const uint8_t* const lines = head + kSuperHeadBytes + i * SuperLineBytes<Super2Format>();
    SuperScales scales = LoadSuper2Scales(head, 2 * i);
    for (size_t k = 0; k < kQuantBlock; ++k) {
      if (k == kQuantBlock / 2) {
        scales = LoadSuper2Scales(head, 2 * i + 1);
      }
      const Lanes w = Fma(scales.s, LoadSuperIntegers<Super2Format>(lines, k), scales.b);
      STRATA_UNROLL
      for (int r = 0; r < N; ++r) {
        acc[r] = Fma(Set(x[(block * kQuantBlock + k) * rows + r]), w, acc[r]);
      }
    }
  }
  StoreRows(args, acc, output, out);
}

struct Super2DequantProduct {
  static bool TryAtOnce(const MatmulArgs&, size_t, size_t) { return false; }
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    for (; first < end; ++first) {
      const uint8_t* const panel = args.weights.data + first * args.weights.panel_bytes;
      ByFewRows<R>([&]<int N>(int from) {
        Super2DequantTile<N>(args, panel, FloatRowsAt(args, row) + from, R, first * kLanes,
                             out + from * args.out_stride);
      });
    }
  }
};
