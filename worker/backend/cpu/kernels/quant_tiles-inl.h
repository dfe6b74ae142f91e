// Products of quantized weights and int8 activations of many rows by matrix tiles, which multiply a
// whole block of 32 inputs at once. Included after quant-inl.h and one of the int_tile_*-inl.h,
// which give, for tiles whose numbers are known to the compiler:
//   LoadTileConfig(config), ReleaseTiles()      the 64 bytes that the processor takes, see below
//   TileZero<T>(), TileLoad<T>(from, stride), TileStore<T>(to, stride)
//   TileDot<C, A, B>()        C[m][n] += sum of A[m][4 k + j] * B[k][4 n + j] over k and j < 4,
//   with
//                             signed bytes in A, unsigned ones in B and int32 in C
//   TileDotSigned<C, A, B>()  the same, signed bytes in B too
//   Minus128(weights)         each of 64 unsigned bytes less 128, as a signed one
// A block's A are the rows' words, its B the lines of a panel, widened to bytes that need no
// correction; its C the sums of 16 outputs a row. They go through memory, where the chains of
// floats take them up.
//
// Measured on a processor that has them: tiles overlap with each other's loads and stores, and
// hardly at all with the floats, so that what counts is how few instructions both are, and that all
// they touch over and over lies in the first cache. See docs/TUNING.md.

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Panels that are multiplied together, so that a block of rows is loaded once for both.
constexpr int kTilePanels = 2;
// A block's C and A are of one of two sets, by its number, so that it does not wait for the one
// before: C 0 and 1, or 2 and 3, of both panels; A 4 or 5. B, 6 and 7, are of both panels.
constexpr int kTileA = 2 * kTilePanels;
constexpr int kTileB = kTileA + 2;

// Of the tiles as this thread has them; 0: released.
thread_local int configured_rows = 0;

// It takes longer than many blocks, so it is done when another number of rows comes only.
STRATA_INLINE void ConfigureTiles(int rows) {
  if (configured_rows == rows) {
    return;
  }
  TileConfig config;
  for (int tile = 0; tile < kTileB + kTilePanels; ++tile) {
    const bool is_a = tile >= kTileA && tile < kTileB;
    config.rows[tile] = static_cast<uint8_t>(tile < kTileB ? rows : kQuantWords);
    config.row_bytes[tile] = is_a ? kQuantBlock : kLanes * sizeof(int32_t);
  }
  LoadTileConfig(&config);
  configured_rows = rows;
}

// Of a block of one panel.
constexpr size_t kTileBytes = kQuantWords * 64;
// The most blocks of 32 inputs whose widened lines are kept: 256 KiB of the second cache.
constexpr size_t kTileBlocks = 256;
// Those kept where no other rows come, so that they stay in the first cache; a power of two.
constexpr size_t kFewTileBlocks = 8;

// The most blocks of rows that prefetch the weights of the next pair of panels. A single block asks
// as near as few rows do.
constexpr uint32_t kPrefetchingBlocks = 8;

// The lines of one block as bytes for a tile.
template <int kBits, bool kLess>
STRATA_INLINE void WidenLines(const uint8_t* from, uint8_t* to) {
  static_assert(sizeof(DotWeights) == 64);
  STRATA_UNROLL
  for (size_t line = 0; line < kQuantWords * kBits / 8; ++line) {
    DotWeights low;
    if constexpr (kBits == 4) {
      DotWeights high;
      LoadDotNibbles(from + line * 64, &low, &high);
      std::memcpy(to + 2 * line * 64, &low, sizeof(low));
      std::memcpy(to + (2 * line + 1) * 64, &high, sizeof(high));
    } else {
      low = LoadDotWeights(from + line * 64);
      if constexpr (kLess) {
        low = Minus128(low);
      }
      std::memcpy(to + line * 64, &low, sizeof(low));
    }
  }
}

// What is multiplied: a pair of panels, and all blocks of rows in turn. What formats differ in is
// looked at seldom, so that there are fewer loops to compile.
struct TileArgs : MatmulArgs {
  TileArgs(const MatmulArgs& args, uint8_t* widened, size_t slots)
      : MatmulArgs(args), widened(widened), slot_mask(slots - 1) {
    affine = args.weights.format != WeightFormat::kInt8;
    block_bytes = args.weights.format == WeightFormat::kAffine4 ? kTileBytes / 2 : kTileBytes;
    group_blocks = args.weights.group / kQuantBlock;
    scale_bytes = ScaleBytes(args);
    head_bytes = (affine ? 2 : 1) * scale_bytes;
    group_bytes = head_bytes + group_blocks * block_bytes;
  }
  // From block `first` on, which is the first of a group.
  const uint8_t* PanelsFrom(size_t first) const {
    return weights.data + panel * weights.panel_bytes + first / group_blocks * group_bytes;
  }
  STRATA_INLINE uint8_t* Widened(size_t block) const {
    return widened + (block & slot_mask) * kTilePanels * kTileBytes;
  }

  uint8_t* const widened;  // [slot][panel of the pair][kTileBytes]
  const size_t slot_mask;  // Block i is in slot i & slot_mask.
  bool affine;
  size_t block_bytes;  // Of a block's lines;
  size_t scale_bytes;  // of its group's scales; and biases where there are any,
  size_t head_bytes;   // which precede it; and of the whole group,
  size_t group_bytes;
  size_t group_blocks;  // of so many blocks.
  size_t panel = 0;     // The pair's first;
  size_t stride = 0;    // bytes to the second, or 0: it is the same, and counts once.
  bool widen = false;   // Else all blocks are there already.
  // Lines of each of two panels that a block of inputs prefetches, of the first from `prefetch` on.
  const uint8_t* prefetch = nullptr;
  size_t prefetch_lines = 0;
};

// Widens the blocks [first, end) of a pair of panels one after another; first is that of a group.
class TileWidener {
 public:
  TileWidener(const TileArgs& args, size_t first, size_t end)
      : args_(args), from_(args.PanelsFrom(first)), block_(first), end_(end) {}
  STRATA_INLINE void Next() {
    if (block_ == end_) {
      return;
    }
    if (left_ == 0) {
      from_ += args_.head_bytes;
      left_ = args_.group_blocks;
    }
    --left_;
    uint8_t* const to = args_.Widened(block_++);
    if (args_.weights.format == WeightFormat::kAffine4) {
      WidenPair<4, false>(to);
    } else if (args_.affine) {
      WidenPair<8, false>(to);
    } else {
      WidenPair<8, true>(to);
    }
    from_ += args_.block_bytes;
  }

 private:
  template <int kBits, bool kLess>
  STRATA_INLINE void WidenPair(uint8_t* to) const {
    WidenLines<kBits, kLess>(from_, to);
    WidenLines<kBits, kLess>(from_ + args_.stride, to + kTileBytes);
  }

  const TileArgs& args_;
  const uint8_t* from_;
  size_t block_;
  const size_t end_;
  size_t left_ = 0;  // Of the group's blocks.
};

// The product of one set's rows and one of the pair's panels.
template <int kSet, int kPanel, bool kUnsigned>
STRATA_INLINE void DotTile(const uint8_t* widened) {
  constexpr int kC = kSet * kTilePanels + kPanel;
  TileLoad<kTileB + kPanel>(widened + kPanel * kTileBytes, 64);
  TileZero<kC>();
  if constexpr (kUnsigned) {
    TileDot<kC, kTileA + kSet, kTileB + kPanel>();
  } else {
    TileDotSigned<kC, kTileA + kSet, kTileB + kPanel>();
  }
}

// The sums of one block of inputs.
template <int R>
struct TileSums {
  alignas(64) int32_t of[kTilePanels][R][kLanes];
  template <int kSet, int kPanel>
  STRATA_INLINE void Store() {
    TileStore<kSet * kTilePanels + kPanel>(of[kPanel], kLanes * sizeof(int32_t));
  }
  // The next links of R chains, of which `scales` are the rows'.
  template <int kPanel>
  STRATA_INLINE void Link(const float* scales, Lanes (&part)[kTilePanels][R]) const {
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      DotSum sum;
      static_assert(sizeof(sum) == sizeof(of[kPanel][r]));
      std::memcpy(&sum, of[kPanel][r], sizeof(sum));
      part[kPanel][r] = Fma(DotFloats(sum), Set(scales[r]), part[kPanel][r]);
    }
  }
};

// The chains over the groups of R rows and a pair of panels.
template <int R>
struct TileChains {
  alignas(64) float acc[kTilePanels][R][kLanes] = {};

  // Their next links, of the chains over the blocks [from, end), whose group is at `group`.
  STRATA_INLINE void AddGroup(const TileArgs& args, const QuantRows& x, const uint8_t* group,
                              size_t from, size_t end, const Lanes (&part)[kTilePanels][R]) {
    const Lanes s0 = LoadScales(args.weights.scale_dtype, group);
    const Lanes s1 = LoadScales(args.weights.scale_dtype, group + args.stride);
    if (!args.affine) {
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        Store(Fma(part[0][r], s0, Load(acc[0][r])), acc[0][r]);
        Store(Fma(part[1][r], s1, Load(acc[1][r])), acc[1][r]);
      }
      return;
    }
    const Lanes b0 = LoadScales(args.weights.scale_dtype, group + args.scale_bytes);
    const Lanes b1 = LoadScales(args.weights.scale_dtype, group + args.scale_bytes + args.stride);
    // A lane a row; those behind R are of what stands behind the sums, and not looked at.
    static_assert(R <= kLanes);
    Lanes rows = Load(x.sums + from * R);
    for (size_t block = from + 1; block < end; ++block) {
      rows = Add(rows, Load(x.sums + block * R));
    }
    alignas(64) float sums[kLanes];
    Store(rows, sums);
    STRATA_UNROLL
    for (int r = 0; r < R; ++r) {
      const Lanes sum = Set(sums[r]);
      Store(Fma(sum, b0, Fma(part[0][r], s0, Load(acc[0][r]))), acc[0][r]);
      Store(Fma(sum, b1, Fma(part[1][r], s1, Load(acc[1][r]))), acc[1][r]);
    }
  }
};

// Adds the blocks [first, end), of which first is the first of a group, to the chains.
template <int R, bool kUnsigned>
void AddTiles(const TileArgs& args, const QuantRows& x, size_t first, size_t end,
              TileChains<R>* chains) {
  TileWidener widener(args, first, end);
  const bool widen = args.widen;
  if (widen) {
    widener.Next();
  }
  const uint8_t* prefetch = args.prefetch + first * args.prefetch_lines * 64;
  const size_t prefetch_lines = args.prefetch_lines;
  const size_t prefetch_stride = args.stride;
  const DotWord* const words = x.words;
  const float* const scales = x.scales;
  const uint8_t* group = args.PanelsFrom(first);
  size_t group_first = first;
  size_t group_end = first;
  size_t steps = 2;  // To when the group is whole, and at the beginning to when one begins.
  TileSums<R> sums[2] = {};
  Lanes part[kTilePanels][R];
  Clear(part);
  // Multiplies a block, stores the sums of the one before, and adds those of the one before that.
  // Where there is none, one is computed in vain, so that there is nothing to decide.
  const auto step = [&](auto set, size_t block) __attribute__((always_inline)) {
    constexpr int kSet = decltype(set)::value;
    const size_t at = block < end ? block : end - 1;
    const float* const row_scales = scales + (block < first + 2 ? first : block - 2) * R;
    const uint8_t* const widened = args.Widened(at);
    TileLoad<kTileA + kSet>(words + at * kQuantWords * R, kQuantBlock);
    DotTile<kSet, 0, kUnsigned>(widened);
    if (widen) {
      widener.Next();
    }
    for (size_t i = 0; i < prefetch_lines; ++i, prefetch += 64) {
      __builtin_prefetch(prefetch, 0, 2);
      __builtin_prefetch(prefetch + prefetch_stride, 0, 2);
    }
    sums[kSet].template Link<0>(row_scales, part);
    sums[1 - kSet].template Store<1 - kSet, 0>();
    DotTile<kSet, 1, kUnsigned>(widened);
    sums[kSet].template Link<1>(row_scales, part);
    sums[1 - kSet].template Store<1 - kSet, 1>();
    if (--steps == 0) {
      if (group_end != group_first) {
        chains->AddGroup(args, x, group, group_first, group_end, part);
        group += args.group_bytes;
      }
      Clear(part);
      group_first = group_end;
      group_end = end - group_first < args.group_blocks ? end : group_first + args.group_blocks;
      steps = group_end - group_first;  // None: no more come.
    }
  };
  for (size_t block = first; block < end + 2; block += 2) {
    step(std::integral_constant<int, 0>(), block);
    step(std::integral_constant<int, 1>(), block + 1);
  }
}

struct TileProduct {
  template <int R>
  static void Run(const TileArgs& args, uint32_t row, float* out, size_t first, size_t end) {
    if constexpr (R >= kTiling.tile_rows) {
      const size_t blocks = QuantBlocks(args.weights.inputs);
      const size_t most =
          blocks <= kTileBlocks ? blocks : kTileBlocks / args.group_blocks * args.group_blocks;
      const QuantRows x =
          QuantRowsAt(args.packed + row * QuantizedRowBytes(args.weights.inputs), R, blocks);
      ConfigureTiles(R);
      TileChains<R> chains;
      for (size_t i = 0; i < blocks; i += most) {
        const size_t last = blocks - i < most ? blocks : i + most;
        if (args.weights.format == WeightFormat::kAffine8) {
          AddTiles<R, true>(args, x, i, last, &chains);
        } else {
          AddTiles<R, false>(args, x, i, last, &chains);
        }
      }
      for (size_t p = 0; first + p < end; ++p) {
        for (int r = 0; r < R; ++r) {
          StoreOutputs(args, Load(chains.acc[p][r]), (first + p) * kLanes,
                       out + r * args.out_stride);
        }
      }
    }
  }
};

// All rows, where each of their blocks is one for tiles. False, and nothing done, where not.
template <typename Args>
bool MultiplyTiles(const Args& args, size_t first, size_t end) {
  const uint32_t row_blocks = RowBlocks(args.rows, kBlockRows);
  const size_t blocks = QuantBlocks(args.weights.inputs);
  const uint32_t least = row_blocks == 1 && args.weights.format != WeightFormat::kAffine4
                             ? kTiling.tile_rows_8
                             : kTiling.tile_rows;
  if (args.rows / row_blocks < least ||
      (blocks > kTileBlocks && args.weights.group > kTileBlocks * kQuantBlock)) {
    return false;
  }
  alignas(64) uint8_t widened[kTileBlocks * kTilePanels * kTileBytes];
  TileArgs tiles(args, widened, row_blocks == 1 ? kFewTileBlocks : kTileBlocks);
  // The next pair is prefetched bit by bit, by the first of the blocks of rows.
  const uint32_t prefetching = row_blocks < kPrefetchingBlocks ? row_blocks : kPrefetchingBlocks;
  const size_t prefetched_lines = args.weights.panel_bytes / prefetching / 64;
  for (OutputPrefetcher outputs(args, first, end); first < end; first += kTilePanels) {
    outputs.At(first);
    const size_t last = first + kTilePanels < end ? first + kTilePanels : end;
    tiles.panel = first;
    tiles.stride = last - first == kTilePanels ? args.weights.panel_bytes : 0;
    const uint8_t* const prefetch =
        row_blocks == 1
            ? args.weights.data + first * args.weights.panel_bytes + kTiling.prefetching.bytes
            : args.weights.data + last * args.weights.panel_bytes;
    const bool more = row_blocks == 1 || last < args.weights.panels();
    for (uint32_t block = 0; block < row_blocks; ++block) {
      tiles.prefetch = prefetch + block * prefetched_lines * 64;
      tiles.prefetch_lines =
          block < prefetching && more ? (prefetched_lines + blocks - 1) / blocks : 0;
      tiles.widen = block == 0 || blocks > kTileBlocks;
      MultiplyBlock<TileProduct>(tiles, RowBlockAt(args.rows, row_blocks, block), first, last);
    }
  }
  return true;
}

// Tiles left in use would be kept at every switch of threads, and keep the core from its deep
// sleep.
template <typename Args>
void EndTiles(const Args&) {
  if (configured_rows != 0) {
    ReleaseTiles();
    configured_rows = 0;
  }
}

// As RunDots: a tile's product counts for that of each of its rows and words.
float RunTileDots(size_t count) {
  constexpr int kRows = 16;
  ConfigureTiles(kRows);
  alignas(64) uint8_t bytes[kRows][64];
  std::memset(bytes, 3, sizeof(bytes));
  TileZero<0>();
  TileZero<1>();
  TileZero<2>();
  TileZero<3>();
  TileLoad<kTileA>(bytes, kQuantBlock);
  TileLoad<kTileA + 1>(bytes, kQuantBlock);
  TileLoad<kTileB>(bytes, 64);
  TileLoad<kTileB + 1>(bytes, 64);
  for (size_t k = 0; k < count * 8 / (4 * kRows * kQuantWords); ++k) {
    TileDot<0, kTileA, kTileB>();
    TileDot<1, kTileA, kTileB + 1>();
    TileDot<2, kTileA + 1, kTileB>();
    TileDot<3, kTileA + 1, kTileB + 1>();
  }
  alignas(64) int32_t sums[4][kRows][kLanes];
  TileStore<0>(sums[0], sizeof(sums[0][0]));
  TileStore<1>(sums[1], sizeof(sums[1][0]));
  TileStore<2>(sums[2], sizeof(sums[2][0]));
  TileStore<3>(sums[3], sizeof(sums[3][0]));
  ReleaseTiles();
  configured_rows = 0;
  return static_cast<float>(sums[0][1][2]) + static_cast<float>(sums[1][3][4]) +
         static_cast<float>(sums[2][5][6]) + static_cast<float>(sums[3][7][8]);
}
