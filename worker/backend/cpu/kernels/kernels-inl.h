// The kernels, written once over 16 lanes. Included by one file for each instruction set, after a
// lanes_*-inl.h and a Tiling kTiling, within its namespace and target attributes; so it includes
// nothing itself.

// Loops over blocks of registers are unrolled whole, or the blocks would live in memory.
#if defined(__clang__)
#define STRATA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STRATA_UNROLL _Pragma("GCC unroll 32")
#endif

// Sums begin with zeros.
template <int R>
STRATA_INLINE void Clear(Lanes (&sums)[R]) {
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    sums[r] = Set(0.0f);
  }
}
template <int P, int R>
STRATA_INLINE void Clear(Lanes (&sums)[P][R]) {
  STRATA_UNROLL
  for (int p = 0; p < P; ++p) {
    Clear(sums[p]);
  }
}

// Exponentials of C times 16 that are not above kExpMax, in place; exp_constants.h says how. A step
// is done of all before the next one, which waits for it.
constexpr int kExpsAtOnce = kTiling.register_lanes >= 16 ? 4 : 1;
template <int C>
STRATA_INLINE void ExpsBounded(Lanes* x) {
  if constexpr (C > kExpsAtOnce) {
    ExpsBounded<C / 2>(x);
    ExpsBounded<C / 2>(x + C / 2);
  } else {
    Lanes t[C], r[C], q[C];
    const auto each = [](const auto& step) {
      STRATA_UNROLL
      for (int i = 0; i < C; ++i) {
        step(i);
      }
    };
    each([&](int i) { t[i] = Fma(x[i], Set(kExpLog2e), Set(kExpMagic)); });
    each([&](int i) { q[i] = Sub(t[i], Set(kExpMagic)); });
    each([&](int i) { r[i] = Fma(q[i], Set(-kExpLn2High), x[i]); });
    each([&](int i) { r[i] = Fma(q[i], Set(-kExpLn2Low), r[i]); });
    each([&](int i) { q[i] = Fma(Set(kExpQ5), r[i], Set(kExpQ4)); });
    each([&](int i) { q[i] = Fma(q[i], r[i], Set(kExpQ3)); });
    each([&](int i) { q[i] = Fma(q[i], r[i], Set(kExpQ2)); });
    each([&](int i) { q[i] = Fma(q[i], r[i], Set(kExpQ1)); });
    each([&](int i) { q[i] = Fma(q[i], r[i], Set(kExpQ0)); });
    each([&](int i) { q[i] = Fma(q[i], Mul(r[i], r[i]), r[i]); });
    each([&](int i) { x[i] = ScaleExp(x[i], Add(Set(1.0f), q[i]), t[i]); });
  }
}
STRATA_INLINE Lanes Exp(const Lanes& x) {
  Lanes e = x;
  ExpsBounded<1>(&e);
  return IfAbove(x, kExpMax, Set(std::numeric_limits<float>::infinity()), e);
}

// The n < 16 first elements, then zeros.
STRATA_INLINE Lanes LoadPart(const float* p, size_t n) {
  alignas(64) float t[16] = {};
  std::memcpy(t, p, n * sizeof(float));
  return Load(t);
}
STRATA_INLINE void StorePart(const Lanes& lanes, float* p, size_t n) {
  alignas(64) float t[16];
  Store(lanes, t);
  std::memcpy(p, t, n * sizeof(float));
}

// Writes one row's sums of the 16 outputs from `first` on, to `out` + first.
STRATA_INLINE void StoreOutputs(const MatmulArgs& args, Lanes y, size_t first, float* out) {
  float* const to = out + first;
  const size_t valid = args.weights.outputs - first;
  if (valid >= kLanes) {
    if (args.bias != nullptr) {
      y = Add(y, Load(args.bias + first));
    }
    if (args.add) {
      y = Add(Load(to), y);
    }
    Store(y, to);
    return;
  }
  if (args.bias != nullptr) {
    y = Add(y, LoadPart(args.bias + first, valid));
  }
  if (args.add) {
    y = Add(LoadPart(to, valid), y);
  }
  StorePart(y, to, valid);
}
// The same of R rows, of P panels.
template <int R>
STRATA_INLINE void StoreRows(const MatmulArgs& args, const Lanes (&sums)[R], size_t first,
                             float* out) {
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    StoreOutputs(args, sums[r], first, out + r * args.out_stride);
  }
}
template <int P, int R>
STRATA_INLINE void StoreTile(const MatmulArgs& args, const Lanes (&sums)[P][R], size_t first,
                             float* out) {
  STRATA_UNROLL
  for (int p = 0; p < P; ++p) {
    StoreRows(args, sums[p], first + p * kLanes, out);
  }
}

// One input of R rows, and of P panels that begin `stride` elements apart, added to `acc`.
template <typename W, int R, int P>
STRATA_INLINE void AddInput(const W* weights, size_t stride, const float* x, Lanes (&acc)[P][R]) {
  // The smaller operand waits in registers for the larger one.
  if constexpr (P < R) {
    Lanes w[P];
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      w[p] = Load(weights + p * stride);
    }
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      const Lanes a = Set(x[r]);
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        acc[p][r] = Fma(a, w[p], acc[p][r]);
      }
    }
  } else {
    STRATA_UNROLL
    for (int p = 0; p < P; ++p) {
      const Lanes w = Load(weights + p * stride);
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[p][r] = Fma(Set(x[r]), w, acc[p][r]);
      }
    }
  }
}

// Prefetches a line of weights, see Prefetching.
STRATA_INLINE void PrefetchWeights(const void* line) {
  if constexpr (kTiling.prefetching.second_cache) {
    __builtin_prefetch(line, 0, 2);
  } else {
    __builtin_prefetch(line);
  }
}

// With up to so many rows weights are taken to come from memory. Several streams of floats begin
// anew every few panels, too often for hardware.
constexpr int kFewRows = 8;

// R rows of a block of kBlock by `P` panels that begin `stride` elements apart. `outputs` of them
// exist.
template <typename W, int R, int P, int kBlock>
void MatmulTile(const MatmulArgs& args, const W* weights, size_t stride, const float* x,
                size_t output, float* out) {
  Lanes acc[P][R];
  Clear(acc);
  const size_t inputs = args.weights.inputs;
  size_t k = 0;
  if constexpr (R > kTiling.prefetching.unprefetched_rows_float && R <= kFewRows) {
    constexpr size_t kInputBytes = kLanes * sizeof(W);
    constexpr size_t kLineInputs = kInputBytes < 64 ? 64 / kInputBytes : 1;
    for (; k + kLineInputs <= inputs; k += kLineInputs) {
      // At a panel's end the beginning of the one that is P behind it.
      const size_t ahead = k + kTiling.prefetching.float_bytes / kInputBytes;
      const W* const prefetched =
          weights + (ahead < inputs ? ahead * kLanes : P * stride + (ahead - inputs) * kLanes);
      STRATA_UNROLL
      for (int p = 0; p < P; ++p) {
        PrefetchWeights(prefetched + p * stride);
      }
      STRATA_UNROLL
      for (size_t i = 0; i < kLineInputs; ++i) {
        AddInput<W, R, P>(weights + (k + i) * kLanes, stride, x + (k + i) * kBlock, acc);
      }
    }
  }
  for (; k < inputs; ++k) {
    AddInput<W, R, P>(weights + k * kLanes, stride, x + k * kBlock, acc);
  }
  StoreTile(args, acc, output, out);
}

// Panels taken at once with R rows: as few streams of weights as keep the units busy.
template <int R>
constexpr int PanelsAtOnce() {
  constexpr int kFit = kTiling.register_lanes / R >= 2 ? 2 : 1;
  return R <= kFewRows && kTiling.prefetching.float_panels < kFit ? kTiling.prefetching.float_panels
                                                                  : kFit;
}

template <typename W, int R, int P, int kBlock>
void MatmulPanels(const MatmulArgs& args, const float* x, float* out, size_t first, size_t end) {
  const size_t stride = args.weights.panel_bytes / sizeof(W);
  const W* const weights = reinterpret_cast<const W*>(args.weights.data);
  for (; first + P <= end; first += P) {
    MatmulTile<W, R, P, kBlock>(args, weights + first * stride, stride, x, first * kLanes, out);
  }
  if constexpr (P > 1) {
    MatmulPanels<W, R, P / 2, kBlock>(args, x, out, first, end);
  }
}

constexpr BlockRows kBlockRows = {kTiling.alone_rows(), kTiling.block_rows};

// Products of a block of rows: what differs is Product::Run<R>, for each number R of rows, and what
// its Args have besides MatmulArgs.
template <typename Product, int R = kTiling.alone_rows(), typename Args>
void MultiplyBlock(const Args& args, RowBlock block, size_t first, size_t end) {
  if constexpr (R > 1) {
    if (block.count < R) {
      MultiplyBlock<Product, R - 1>(args, block, first, end);
      return;
    }
  }
  Product::template Run<R>(args, block.first, args.out + block.first * args.out_stride, first, end);
}

// Few panels at a time, so that they stay in cache for all the blocks of rows.
constexpr size_t kPanelsInCache = 4;

// So few rows' outputs are prefetched, of so many panels together. Each row's are a stream of their
// own, far from the others'; where every panel begins all of them again, hardware takes that for so
// many streams to read ahead in, and the weights wait for it.
constexpr uint32_t kPrefetchedRows = 16;
constexpr size_t kPanelsPrefetched = 32;

// What prefetches the outputs of the panels [first, end) as their products come to them.
class OutputPrefetcher {
 public:
  OutputPrefetcher(const MatmulArgs& args, size_t first, size_t end)
      : args_(args), next_(args.rows <= kPrefetchedRows ? first : end), end_(end) {}

  STRATA_INLINE void At(size_t panel) {
    if (panel < next_ || next_ == end_) {
      return;
    }
    const size_t last = next_ + kPanelsPrefetched < end_ ? next_ + kPanelsPrefetched : end_;
    for (uint32_t r = 0; r < args_.rows; ++r) {
      const float* const out = args_.out + r * args_.out_stride;
      for (size_t p = next_; p < last; ++p) {
        __builtin_prefetch(out + p * kLanes, 1);
      }
    }
    next_ = last;
  }

 private:
  const MatmulArgs& args_;
  size_t next_;
  const size_t end_;
};

// Whether a product's blocks prefetch in turn (Prefetching::in_turn).
template <typename Product>
constexpr bool kPrefetchesInTurn = false;

// What a block of rows prefetches then: with what it reads at `from` + n bytes, `prefetch` + n /
// kPrefetchingInTurn. Null: nothing.
struct InTurnArgs : MatmulArgs {
  explicit InTurnArgs(const MatmulArgs& args) : MatmulArgs(args) {}
  const uint8_t* from = nullptr;
  const uint8_t* prefetch = nullptr;
  bool cached = false;  // Other blocks have just read the panels: they are not prefetched.
};
constexpr uint32_t kPrefetchingInTurn = 2;
// So many blocks take long for each panel, and memory hardly shows: where more panels stay in cache
// for all of them, the blocks' own activations are read less often.
constexpr uint32_t kManyBlocks = 12;
constexpr size_t kMostInCache = 2 * kPanelsInCache;
// A product's Tiling::many_blocks_bytes.
template <typename Product>
constexpr size_t kManyBlocksBytes = 0;

// The panels that stay in cache for several blocks of rows, those that are prefetched in turn among
// them.
template <typename Product>
STRATA_INLINE size_t PanelsForBlocks(uint32_t blocks, size_t panel_bytes) {
  if (blocks < kManyBlocks) {
    return kPrefetchesInTurn<Product> ? kPanelsInCache / 2 : kPanelsInCache;
  }
  const size_t fit = kManyBlocksBytes<Product> / panel_bytes;
  return fit < kPanelsInCache ? kPanelsInCache : fit < kMostInCache ? fit : kMostInCache;
}

// All rows, block by block.
template <typename Product>
void Multiply(const MatmulArgs& args, size_t first, size_t end) {
  const uint32_t blocks = RowBlocks(args.rows, kBlockRows);
  const size_t at_once =
      blocks == 1 ? kPanelsPrefetched : PanelsForBlocks<Product>(blocks, args.weights.panel_bytes);
  InTurnArgs in_turn(args);
  for (OutputPrefetcher outputs(args, first, end); first < end; first += at_once) {
    outputs.At(first);
    const size_t last = first + at_once < end ? first + at_once : end;
    const size_t bytes = (last - first) * args.weights.panel_bytes;
    in_turn.from = args.weights.data + first * args.weights.panel_bytes;
    for (uint32_t block = 0; block < blocks; ++block) {
      // The same thread's next panels, more often than not, where these are the last of its own.
      const bool prefetches =
          blocks > 1 && block < kPrefetchingInTurn && last < args.weights.panels();
      in_turn.prefetch =
          prefetches ? in_turn.from + bytes + block * bytes / kPrefetchingInTurn : nullptr;
      in_turn.cached = block >= kPrefetchingInTurn;
      MultiplyBlock<Product>(in_turn, RowBlockAt(args.rows, blocks, block), first, last);
    }
  }
}

// A block's activations as pack_rows leaves them.
STRATA_INLINE const float* FloatRowsAt(const MatmulArgs& args, uint32_t row) {
  return reinterpret_cast<const float*>(args.packed) + row * args.weights.inputs;
}

template <typename W>
struct FloatProduct {
  template <int R>
  static void Run(const MatmulArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    const float* const x = FloatRowsAt(args, row);
    if constexpr (R > kFewRows && PanelsAtOnce<R>() == 1) {
      // Two panels by half of the rows: with one, each product loads its row's input anew.
      constexpr int kHalf = (R + 1) / 2;
      float* const rest = out + kHalf * args.out_stride;
      for (; first < end; first += kPanelsInCache) {
        const size_t last = first + kPanelsInCache < end ? first + kPanelsInCache : end;
        MatmulPanels<W, kHalf, PanelsAtOnce<kHalf>(), R>(args, x, out, first, last);
        MatmulPanels<W, R - kHalf, PanelsAtOnce<R - kHalf>(), R>(args, x + kHalf, rest, first,
                                                                 last);
      }
    } else {
      MatmulPanels<W, R, PanelsAtOnce<R>(), R>(args, x, out, first, end);
    }
  }
};

void PackRows(const float* x, size_t stride, uint32_t rows, size_t inputs, uint8_t* packed) {
  float* const to = reinterpret_cast<float*>(packed);
  for (uint32_t r = 0; r < rows; ++r) {
    const float* const row = x + r * stride;
    for (size_t k = 0; k < inputs; ++k) {
      to[k * rows + r] = row[k];
    }
  }
}

void RmsNorm(const float* x, const float* weight, size_t n, float eps, float plus, float* out) {
  const size_t whole = n / kLanes * kLanes;
  Lanes squares = Set(0.0f);
  for (size_t k = 0; k < whole; k += kLanes) {
    const Lanes v = Load(x + k);
    squares = Fma(v, v, squares);
  }
  if (whole < n) {
    const Lanes v = LoadPart(x + whole, n - whole);
    squares = Fma(v, v, squares);
  }
  const float mean = TreeSum(squares) / static_cast<float>(n);
  const Lanes factor = Set(1.0f / std::sqrt(mean + eps));
  const Lanes add = Set(plus);
  for (size_t k = 0; k < whole; k += kLanes) {
    Store(Mul(Mul(Load(x + k), factor), Add(add, Load(weight + k))), out + k);
  }
  if (whole < n) {
    const size_t rest = n - whole;
    const Lanes w = Add(add, LoadPart(weight + whole, rest));
    StorePart(Mul(Mul(LoadPart(x + whole, rest), factor), w), out + whole, rest);
  }
}

struct SiluLanes {
  static STRATA_INLINE Lanes Exponent(const Lanes& x) { return Sub(Set(0.0f), x); }
};
struct GeluLanes {
  static STRATA_INLINE Lanes Exponent(const Lanes& x) {
    return Mul(x, Fma(Mul(x, x), Set(kGeluCubic), Set(kGeluLinear)));
  }
};

template <typename Activation>
STRATA_INLINE Lanes GatedLanes(const Lanes& gate, const Lanes& up) {
  const Lanes below = Add(Set(1.0f), Exp(Activation::Exponent(gate)));
  return Mul(Div(gate, below), up);
}

template <typename Activation>
void GatedProduct(const float* gate, const float* up, size_t n, float* out) {
  size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    Store(GatedLanes<Activation>(Load(gate + k), Load(up + k)), out + k);
  }
  if (k < n) {
    StorePart(GatedLanes<Activation>(LoadPart(gate + k, n - k), LoadPart(up + k, n - k)), out + k,
              n - k);
  }
}

// Between -most and most; a NaN stays one, as the second operand of Max does.
STRATA_INLINE Lanes Clamp(const Lanes& x, float most) {
  const Lanes minus = Set(-1.0f);
  const Lanes least = Set(-most);
  return Mul(minus, Max(least, Mul(minus, Max(least, x))));
}

STRATA_INLINE Lanes AtMost(const Lanes& x, float most) {
  const Lanes minus = Set(-1.0f);
  return Mul(minus, Max(Set(-most), Mul(minus, x)));
}

STRATA_INLINE Lanes ClampedLanes(const Lanes& gate, const Lanes& up, float limit, float gain) {
  const Lanes x = AtMost(gate, limit);
  const Lanes below = Add(Set(1.0f), Exp(Mul(x, Set(-gain))));
  return Mul(Div(x, below), Add(Clamp(up, limit), Set(1.0f)));
}

void ClampedProduct(const float* gate, const float* up, size_t n, float limit, float gain,
                    float* out) {
  size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    Store(ClampedLanes(Load(gate + k), Load(up + k), limit, gain), out + k);
  }
  if (k < n) {
    StorePart(ClampedLanes(LoadPart(gate + k, n - k), LoadPart(up + k, n - k), limit, gain),
              out + k, n - k);
  }
}

// See exp_constants.h.
STRATA_INLINE Lanes Tanh(const Lanes& x) {
  const Lanes y = Clamp(x, kTanhMost);
  const Lanes a = Clamp(y, kTanhNear);
  const Lanes z = Mul(a, a);
  Lanes p = Set(kTanhP4);
  p = Fma(p, z, Set(kTanhP3));
  p = Fma(p, z, Set(kTanhP2));
  p = Fma(p, z, Set(kTanhP1));
  p = Fma(p, z, Set(kTanhP0));
  const Lanes t = Fma(Mul(p, z), a, a);
  const Lanes e = Exp(Mul(Set(-2.0f), Sub(y, a)));
  const Lanes sum = Add(Set(1.0f), e);
  const Lanes difference = Sub(Set(1.0f), e);
  return Div(Fma(t, sum, difference), Fma(t, difference, sum));
}

STRATA_INLINE Lanes SoftCap(const Lanes& x, const Lanes& cap) {
  return Mul(cap, Tanh(Div(x, cap)));
}

void SoftCapAll(float* x, size_t n, float cap) {
  const Lanes caps = Set(cap);
  size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    Store(SoftCap(Load(x + k), caps), x + k);
  }
  if (k < n) {
    StorePart(SoftCap(LoadPart(x + k, n - k), caps), x + k, n - k);
  }
}

void ExpAll(const float* x, size_t n, float* out) {
  for (size_t k = 0; k < n; k += kLanes) {
    const size_t part = n - k < kLanes ? n - k : kLanes;
    StorePart(Exp(LoadPart(x + k, part)), out + k, part);
  }
}

void ToF16All(const float* x, size_t n, uint16_t* out) {
  for (size_t k = 0; k < n; k += kLanes) {
    const size_t part = n - k < kLanes ? n - k : kLanes;
    F16 t[16];
    Store(LoadPart(x + k, part), t);
    std::memcpy(out + k, t, part * sizeof(F16));
  }
}

template <typename T>
void FromHalfAll(const uint16_t* x, size_t n, float* out) {
  for (size_t k = 0; k < n; k += kLanes) {
    const size_t part = n - k < kLanes ? n - k : kLanes;
    T t[16] = {};
    std::memcpy(t, x + k, part * sizeof(T));
    StorePart(Load(t), out + k, part);
  }
}
