// Products of 8-bit weights and int8 activations of many rows by tables of flipped weights.
// Included after loops_after_dots-inl.h, with dot products whose operands are flipped (kFlipped),
// which give
//   kFlipPatterns                       the ways in which a word flips a line of weights
//   FlipPattern(word)                   the one of them that is the word's
//   StoreFlipped(weights, pattern, to)  a line so flipped, to 64 bytes, aligned as a line is
//   DotFlipped(sum, flipped, word)      DotStep of such a line and a word of that pattern
//
// Flipping is one in four of a dot product's operations, and the signs of a word's four bytes flip
// a line in one of sixteen ways. So a block of 32 inputs of a pair of panels is flipped in all of
// them once, 16 KiB that stay in the first cache, and all rows take theirs from there. What bounds
// them is how many products of vectors a processor begins at once, not all operations. The chains
// of floats, which registers hold elsewhere, wait in memory from block to block.

constexpr size_t kTablePanels = 2;
// Of a pair of lines, one way; and of a block.
constexpr size_t kTableLineBytes = kTablePanels * 64;
constexpr size_t kTableBytes = kQuantWords * kFlipPatterns * kTableLineBytes;
// So many rows are cut into blocks of no fewer than this.
constexpr int kLeastTableRows = kTiling.block_rows - 1;
static_assert(kTiling.table_rows == 0 ||
              (kFlipped && kTiling.tile_rows == 0 && kTiling.table_rows > kTiling.alone_rows() &&
               kTiling.table_rows >= kTiling.block_rows * kLeastTableRows));
// Pairs that are taken in turn group by group, so that the rows' activations stay in the second
// cache.
constexpr size_t kTablePairs = 4;
// Blocks of rows that are taken together, at the most; their chains take 360 KiB.
constexpr uint32_t kTableRowBlocks = 96;
constexpr size_t kTableChainFloats = kTablePanels * kLanes;  // Of a row.
constexpr size_t kTableChains = kTableRowBlocks * kBlockRows.most * kTableChainFloats;

// A block of inputs of a pair of panels, whose products are added to the rows' chains.
struct TableArgs : MatmulArgs {
  TableArgs(const MatmulArgs& args, const uint8_t* tables, float* parts)
      : MatmulArgs(args), tables(tables), parts(parts) {}

  const uint8_t* const tables;  // [word][pattern][panel][64]
  float* const parts;           // The chains over a group's blocks, [row][panel][16],
  float* sums = nullptr;        // and over the groups;
  uint32_t first_row = 0;       // of the rows from this one on.
  uint32_t row_blocks = 0;      // Blocks of as many rows that are multiplied one after another.
  size_t block = 0;
  size_t group_first = 0;  // Its group is of the blocks [group_first, group_end).
  size_t group_end = 0;
  const uint8_t* scales = nullptr;  // The group's, of the first panel;
  size_t stride = 0;                // bytes to the second's, 0: there is none, the first counts.
};

// Blocks of R rows one after another. kFirst, kLast: the block of inputs is that of its group.
template <typename F, bool kFirst, bool kLast>
struct TableProduct {
  template <int R>
  static void Run(const TableArgs& args, uint32_t row, float* /*out*/, size_t /*first*/,
                  size_t /*end*/) {
    if constexpr (R >= kLeastTableRows) {
      AddRows<R>(args, row);
    }
  }

 private:
  template <int R>
  static void AddRows(const TableArgs& args, uint32_t row) {
    const size_t blocks = QuantBlocks(args.weights.inputs);
    const size_t rows_bytes = R * QuantizedRowBytes(args.weights.inputs);
    const uint8_t* packed = args.packed + row * QuantizedRowBytes(args.weights.inputs);
    const uint8_t* const packed_end = packed + args.row_blocks * rows_bytes;
    const uint8_t* const tables = args.tables;
    const size_t block = args.block;
    const size_t chains = (row - args.first_row) * kTableChainFloats;
    float* part = args.parts + chains;
    float* sum = args.sums + chains;
    Lanes s[kTablePanels];
    Lanes b[kTablePanels];
    if constexpr (kLast) {
      STRATA_UNROLL
      for (size_t p = 0; p < kTablePanels; ++p) {
        const uint8_t* const scales = args.scales + p * args.stride;
        s[p] = LoadScales(args.weights.scale_dtype, scales);
        b[p] = F::kAffine ? LoadScales(args.weights.scale_dtype, scales + ScaleBytes(args))
                          : Set(0.0f);
      }
    }
    for (; packed < packed_end; packed += rows_bytes) {
      const QuantRows x = QuantRowsAt(packed, R, blocks);
      const DotWord* const words = x.words + block * kQuantWords * R;
      for (int r = 0; r < R; ++r, part += kTableChainFloats, sum += kTableChainFloats) {
        const size_t at = block * R + r;
        DotSum dots[kTablePanels];
        STRATA_UNROLL
        for (size_t p = 0; p < kTablePanels; ++p) {
          dots[p] = DotBegin(BlockBegin<F>(x, at));
        }
        STRATA_UNROLL
        for (size_t w = 0; w < kQuantWords; ++w) {
          const DotWord* const word = words + DotWordAt(w, r, R);
          const uint8_t* const flipped =
              tables + w * kFlipPatterns * kTableLineBytes + FlipPattern(*word) * kTableLineBytes;
          STRATA_UNROLL
          for (size_t p = 0; p < kTablePanels; ++p) {
            dots[p] = DotFlipped(dots[p], flipped + p * 64, *word);
          }
        }
        STRATA_UNROLL
        for (size_t p = 0; p < kTablePanels; ++p) {
          const Lanes link = AddBlock(x, at, dots[p], kFirst ? Set(0.0f) : Load(part + p * kLanes));
          if constexpr (kLast) {
            Store(AddGroup<F, R>(x, r, args.group_first, args.group_end, s[p], b[p], link,
                                 Load(sum + p * kLanes)),
                  sum + p * kLanes);
          } else {
            Store(link, part + p * kLanes);
          }
        }
      }
    }
  }
};

// The tables of a block of a pair of panels.
STRATA_INLINE void MakeTables(const uint8_t* lines, size_t stride, uint8_t* tables) {
  for (size_t w = 0; w < kQuantWords; ++w) {
    STRATA_UNROLL
    for (size_t p = 0; p < kTablePanels; ++p) {
      const uint8_t* const line = lines + p * stride + w * 64;
      // What follows in the panel, the next block or the next group's; beyond its end too.
      __builtin_prefetch(
          reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + kQuantWords * 64));
      const DotWeights weights = LoadDotWeights(line);
      STRATA_UNROLL
      for (size_t pattern = 0; pattern < kFlipPatterns; ++pattern) {
        StoreFlipped(weights, pattern,
                     tables + (w * kFlipPatterns + pattern) * kTableLineBytes + p * 64);
      }
    }
  }
}

// Blocks of as many rows one after another.
struct RowRun {
  RowBlock first;
  uint32_t blocks;
};
// Of the blocks of rows [from, to) of row_blocks; returns how many.
inline size_t FindRuns(uint32_t rows, uint32_t row_blocks, uint32_t from, uint32_t to,
                       RowRun* runs) {
  size_t count = 0;
  for (uint32_t b = from; b < to; ++b) {
    const RowBlock block = RowBlockAt(rows, row_blocks, b);
    if (count == 0 || runs[count - 1].first.count != block.count) {
      runs[count++] = {block, 0};
    }
    ++runs[count - 1].blocks;
  }
  return count;
}

// The blocks of rows [from, to) of row_blocks, and the panels [first, end). Never a part of its
// callers, whose other products would then have its frame.
template <typename F>
[[gnu::noinline]] void MultiplyByTables(const MatmulArgs& args, uint32_t row_blocks, uint32_t from,
                                        uint32_t to, size_t first, size_t end) {
  alignas(64) uint8_t tables[kTableBytes];
  alignas(64) float parts[kTableChains];
  alignas(64) float sums[kTablePairs][kTableChains];
  RowRun runs[kTableRowBlocks];
  const size_t run_count = FindRuns(args.rows, row_blocks, from, to, runs);
  const RowRun& last_run = runs[run_count - 1];
  const uint32_t first_row = runs[0].first.first;
  const uint32_t rows = last_run.first.first + last_run.blocks * last_run.first.count - first_row;
  TableArgs at(args, tables, parts);
  at.first_row = first_row;
  const auto add_block = [&]<bool kFirst, bool kLast>() {
    for (size_t i = 0; i < run_count; ++i) {
      at.row_blocks = runs[i].blocks;
      MultiplyBlock<TableProduct<F, kFirst, kLast>, kTiling.block_rows>(at, runs[i].first, 0, 0);
    }
  };
  // Of the group that begins at `group` in the first panel.
  const size_t head_bytes = (F::kAffine ? 2 : 1) * ScaleBytes(args);
  const auto add_group = [&](const uint8_t* group) {
    at.scales = group;
    const uint8_t* lines = group + head_bytes;
    for (at.block = at.group_first; at.block < at.group_end; ++at.block) {
      MakeTables(lines, at.stride, tables);
      lines += kQuantBlock * kLanes;
      const bool is_first = at.block == at.group_first;
      const bool is_last = at.block + 1 == at.group_end;
      if (is_first && is_last) {
        add_block.template operator()<true, true>();
      } else if (is_first) {
        add_block.template operator()<true, false>();
      } else if (is_last) {
        add_block.template operator()<false, true>();
      } else {
        add_block.template operator()<false, false>();
      }
    }
  };
  const size_t blocks = QuantBlocks(args.weights.inputs);
  const size_t group_blocks = args.weights.group / kQuantBlock;
  const size_t group_bytes = head_bytes + group_blocks * kQuantBlock * kLanes;
  constexpr size_t kAtOnce = kTablePairs * kTablePanels;
  for (; first < end; first += kAtOnce) {
    const size_t last = first + kAtOnce < end ? first + kAtOnce : end;
    for (size_t panel = first; panel < last; panel += kTablePanels) {
      std::memset(sums[(panel - first) / kTablePanels], 0,
                  rows * kTableChainFloats * sizeof(float));
    }
    for (size_t group = 0; group * group_blocks < blocks; ++group) {
      at.group_first = group * group_blocks;
      at.group_end =
          blocks - at.group_first < group_blocks ? blocks : at.group_first + group_blocks;
      for (size_t panel = first; panel < last; panel += kTablePanels) {
        at.sums = sums[(panel - first) / kTablePanels];
        at.stride = panel + 1 < last ? args.weights.panel_bytes : 0;
        add_group(args.weights.data + panel * args.weights.panel_bytes + group * group_bytes);
      }
    }
    for (uint32_t r = 0; r < rows; ++r) {
      for (size_t panel = first; panel < last; ++panel) {
        const float* const row = sums[(panel - first) / kTablePanels] + r * kTableChainFloats;
        StoreOutputs(args, Load(row + (panel - first) % kTablePanels * kLanes), panel * kLanes,
                     args.out + (first_row + r) * args.out_stride);
      }
    }
  }
}

// All rows, if they are many enough. False, and nothing done, where not.
template <typename F, typename Args>
bool MultiplyByTables(const Args& args, size_t first, size_t end) {
  if (args.rows < static_cast<uint32_t>(kTiling.table_rows)) {
    return false;
  }
  const uint32_t row_blocks = RowBlocks(args.rows, kBlockRows);
  const uint32_t parts = (row_blocks + kTableRowBlocks - 1) / kTableRowBlocks;
  for (uint32_t part = 0; part < parts; ++part) {
    const RowBlock of = RowBlockAt(row_blocks, parts, part);
    MultiplyByTables<F>(args, row_blocks, of.first, of.first + of.count, first, end);
  }
  return true;
}
