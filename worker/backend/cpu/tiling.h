// How much each instruction set takes at once: what its registers hold.
#ifndef STRATA_WORKER_BACKEND_CPU_TILING_H_
#define STRATA_WORKER_BACKEND_CPU_TILING_H_

namespace strata::cpu {

// No result depends on it.
struct Tiling {
  int register_lanes;  // Sums of 16 float lanes kept in flight, next to operands.
  int block_rows;      // The most rows of a block.
  int dot_chains;      // Sums of int8 products that keep its units busy, where they are measured.
  int dot_panel_rows;  // Of so many rows or more int8 products take two panels at once, by halves.
  int tile_rows = 0;   // Blocks of so many rows or more go through matrix tiles; 0: none do.
};

inline constexpr Tiling kScalarTiling = {4, 4, 1, 99};
inline constexpr Tiling kAvx2Tiling = {6, 6, 1, 99};
inline constexpr Tiling kAvx512Tiling = {24, 12, 6, 99};
inline constexpr Tiling kAvx512VnniTiling = {24, 12, 12, 9};
// As many rows as a tile has. By counting cycles, and not by measuring, is where they begin to pay.
inline constexpr Tiling kAmxTiling = {24, 16, 12, 99, 8};
// By the number of registers, and not by measuring.
inline constexpr Tiling kNeonTiling = {6, 6, 2, 99};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_TILING_H_
