// Products of quantized weights and int8 activations of many rows by matrix tiles, which multiply a
// whole block of 32 inputs at once. Included after quant-inl.h and one of the int_tile_*-inl.h,
// which give, for tiles whose numbers are known to the compiler:
//   LoadTileConfig(config), ReleaseTiles()      the 64 bytes that the processor takes, see below
//   TileZero<T>(), TileLoad<T>(from, stride), TileStore<T>(to, stride)
//   TileDot<C, A, B>()        C[m][n] += sum of A[m][4 k + j] * B[k][4 n + j] over k and j < 4,
//   with
//                             signed bytes in A, unsigned ones in B and int32 in C
//   DotPlus(sum, n)           n added to each
// A block's A are the rows' words, its B is the lines of the panel as they are, its C the sums of
// 16 outputs a row. The sums go through memory, where the chains of floats take them up.

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Two sets, so that a block does not wait for the one before: 0 and 3 are C, 1 and 4 A, 2 and 5 B.
constexpr int kTilesOfSet = 3;

// Of the tiles as this thread has them; 0: released.
thread_local int configured_rows = 0;

// It takes longer than many blocks, so it is done when another number of rows comes only.
STRATA_INLINE void ConfigureTiles(int rows) {
  if (configured_rows == rows) {
    return;
  }
  TileConfig config;
  for (int set = 0; set < 2; ++set) {
    const int c = set * kTilesOfSet;
    config.rows[c] = config.rows[c + 1] = static_cast<uint8_t>(rows);
    config.rows[c + 2] = kQuantWords;
    config.row_bytes[c] = config.row_bytes[c + 2] = kLanes * sizeof(int32_t);
    config.row_bytes[c + 1] = kQuantBlock;
  }
  LoadTileConfig(&config);
  configured_rows = rows;
}

// Blocks whose sums are kept: they are taken up long after they were stored, and stay in the first
// cache.
constexpr size_t kTileSlots = 4;
template <int R>
struct TileScratch {
  alignas(64) int32_t sums[kTileSlots][R][kLanes];
  alignas(64) uint8_t lines[2][kQuantWords][64];  // Of 4-bit weights, widened.
};

template <typename F>
STRATA_INLINE void WidenLines(const uint8_t* from, uint8_t (&to)[kQuantWords][64]) {
  static_assert(sizeof(DotWeights) == 64);
  for (size_t line = 0; line < kQuantWords / 2; ++line) {
    DotWeights low;
    DotWeights high;
    LoadDotNibbles(from + line * 64, &low, &high);
    std::memcpy(to[2 * line], &low, sizeof(low));
    std::memcpy(to[2 * line + 1], &high, sizeof(high));
  }
}

// The sums of one block, by one set of tiles.
template <typename F, int kSet, int R>
STRATA_INLINE void DotTile(const uint8_t* lines, const DotWord* words, int32_t (&sums)[R][kLanes],
                           uint8_t (&widened)[kQuantWords][64]) {
  constexpr int kC = kSet * kTilesOfSet;
  for (size_t line = 0; line < kQuantWords * F::kBits / 8; ++line) {
    AskForWeights(lines + line * 64 + kTiling.asking.bytes);
  }
  TileLoad<kC + 1>(words, kQuantBlock);
  if constexpr (F::kBits == 4) {
    WidenLines<F>(lines, widened);
    lines = widened[0];
  }
  TileLoad<kC + 2>(lines, 64);
  TileZero<kC>();
  TileDot<kC, kC + 1, kC + 2>();
  TileStore<kC>(sums, kLanes * sizeof(int32_t));
}

// The blocks of a panel, one after another, from the first of a group on.
template <typename F>
class BlockWalk {
 public:
  BlockWalk(const MatmulArgs& args, const uint8_t* panel)
      : at_(panel),
        scale_bytes_((F::kAffine ? 2 : 1) * ScaleBytes(args)),
        group_blocks_(args.weights.group / kQuantBlock) {}
  // The next block's lines; before, where it is the first of a group, begin(the group's scales).
  template <typename Begin>
  STRATA_INLINE const uint8_t* Next(const Begin& begin) {
    if (left_ == 0) {
      begin(at_);
      at_ += scale_bytes_;
      left_ = group_blocks_;
    }
    --left_;
    const uint8_t* const lines = at_;
    at_ += kBlockBytes;
    return lines;
  }
  static constexpr size_t kBlockBytes = kQuantBlock * kLanes * F::kBits / 8;

 private:
  const uint8_t* at_;
  const size_t scale_bytes_;
  const size_t group_blocks_;
  size_t left_ = 0;
};

// The links of the blocks [first, end) of R rows and one panel, which is given from the group of
// the first on, to the chains at `chains`.
template <typename F, int R>
void AddTiles(const MatmulArgs& args, const uint8_t* panel, const QuantRows& x, size_t first,
              size_t end, TileScratch<R>* scratch, Lanes* chains) {
  const size_t group_blocks = args.weights.group / kQuantBlock;
  Lanes acc[R];
  Lanes part[R];
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r] = chains[r];
    part[r] = Set(0.0f);
  }
  BlockWalk<F> dots(args, panel);
  BlockWalk<F> links(args, panel);
  Lanes s = Set(0.0f);
  Lanes b = Set(0.0f);
  for (size_t block = first; block < end + kTileSlots; ++block) {
    if (block >= first + kTileSlots) {
      links.Next([&](const uint8_t* scales) {
        s = LoadScales(args.weights.scale_dtype, scales);
        if constexpr (F::kAffine) {
          b = LoadScales(args.weights.scale_dtype, scales + ScaleBytes(args));
        }
      });
      const size_t done = block - kTileSlots;
      STRATA_UNROLL
      for (int r = 0; r < R; ++r) {
        const size_t at = done * R + r;
        DotSum sum;
        static_assert(sizeof(sum) == sizeof(scratch->sums[0][0]));
        std::memcpy(&sum, scratch->sums[done % kTileSlots][r], sizeof(sum));
        part[r] = AddBlock(x, at, DotPlus(sum, DotCorrection<F>(x.offsets[at])), part[r]);
      }
      if ((done + 1) % group_blocks == 0 || done + 1 == end) {
        const size_t from = done / group_blocks * group_blocks;
        STRATA_UNROLL
        for (int r = 0; r < R; ++r) {
          acc[r] = AddGroup<F, R>(x, r, from, done + 1, s, b, part[r], acc[r]);
          part[r] = Set(0.0f);
        }
      }
    }
    if (block < end) {
      const uint8_t* const lines = dots.Next([](const uint8_t*) {});
      const DotWord* const words = x.words + block * kQuantWords * R;
      auto& sums = scratch->sums[block % kTileSlots];
      if (block % 2 == 0) {
        DotTile<F, 0, R>(lines, words, sums, scratch->lines[0]);
      } else {
        DotTile<F, 1, R>(lines, words, sums, scratch->lines[1]);
      }
    }
  }
  STRATA_UNROLL
  for (int r = 0; r < R; ++r) {
    chains[r] = acc[r];
  }
}

// Where there are more rows than these, blocks of 32 inputs that are multiplied with some panels
// before the next: the rows' part of them then stays in the first cache.
constexpr size_t kTileChunk = 32;
constexpr size_t kTilePanels = 4;

template <typename F, int R>
void MultiplyTiles(const MatmulArgs& args, const QuantRows& x, size_t first, size_t end,
                   float* out) {
  ConfigureTiles(R);
  TileScratch<R> scratch;
  Lanes chains[kTilePanels][R];
  const size_t blocks = QuantBlocks(args.weights.inputs);
  const size_t group_blocks = args.weights.group / kQuantBlock;
  const size_t group_bytes =
      (F::kAffine ? 2 : 1) * ScaleBytes(args) + group_blocks * BlockWalk<F>::kBlockBytes;
  // One block of rows reads weights from memory, which is faster in one stream.
  const size_t chunk = args.rows == R              ? (blocks + group_blocks - 1) / group_blocks
                       : group_blocks < kTileChunk ? kTileChunk / group_blocks
                                                   : 1;
  for (; first < end; first += kTilePanels) {
    const size_t panels = end - first < kTilePanels ? end - first : kTilePanels;
    for (size_t i = 0; i < panels * R; ++i) {
      chains[i / R][i % R] = Set(0.0f);
    }
    for (size_t group = 0; group * group_blocks < blocks; group += chunk) {
      const size_t last = (group + chunk) * group_blocks;
      for (size_t p = 0; p < panels; ++p) {
        const uint8_t* const panel =
            args.weights.data + (first + p) * args.weights.panel_bytes + group * group_bytes;
        AddTiles<F, R>(args, panel, x, group * group_blocks, last < blocks ? last : blocks,
                       &scratch, chains[p]);
      }
    }
    for (size_t p = 0; p < panels; ++p) {
      for (int r = 0; r < R; ++r) {
        StoreOutputs(args, chains[p][r], (first + p) * kLanes, out + r * args.out_stride);
      }
    }
  }
}

// As RunDots: a tile's product counts for that of each of its rows and words.
float RunTileDots(size_t count) {
  constexpr int kRows = 16;
  ConfigureTiles(kRows);
  alignas(64) uint8_t bytes[kRows][64];
  std::memset(bytes, 3, sizeof(bytes));
  TileZero<0>();
  TileZero<3>();
  TileLoad<1>(bytes, kQuantBlock);
  TileLoad<2>(bytes, 64);
  TileLoad<4>(bytes, kQuantBlock);
  TileLoad<5>(bytes, 64);
  for (size_t k = 0; k < count * 8 / (2 * kRows * kQuantWords); ++k) {
    TileDot<0, 1, 2>();
    TileDot<3, 4, 5>();
  }
  alignas(64) int32_t sums[2][kRows][kLanes];
  TileStore<0>(sums[0], sizeof(sums[0][0]));
  TileStore<3>(sums[1], sizeof(sums[1][0]));
  ReleaseTiles();
  configured_rows = 0;
  return static_cast<float>(sums[0][1][2]) + static_cast<float>(sums[1][3][4]);
}
