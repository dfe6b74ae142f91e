// How much each instruction set takes at once, which is what its registers hold, and how processors
// want to be asked for memory.
#ifndef STRATA_WORKER_BACKEND_CPU_TILING_H_
#define STRATA_WORKER_BACKEND_CPU_TILING_H_

namespace strata::cpu {

// How weights that come from memory are asked for ahead of their use. Hardware follows a stream by
// itself, if it may, and what a program asks for takes buffers away from that; but where a line
// takes long to be used up, the processor's window holds too few of them to keep memory busy.
// Measured, see docs/PERFORMANCE.md. No result depends on it.
struct Asking {
  int unasked_rows_8;      // Nothing is asked for with up to so many rows: of more than 4 bits,
  int unasked_rows_4;      // of 4 bits,
  int unasked_rows_float;  // of floats.
  bool second_cache;       // What is asked for goes to the second cache, else to the first.
  int bytes;               // So far ahead,
  int bytes_4;             // of 4 bits,
  int float_bytes;         // of floats.
  int float_panels;        // Streams of floats, with few rows;
  int quant_panels;        // and of integers.
  // Halves of a block's rows (Tiling::dot_panel_rows) ask for the next pair of panels, each for one
  // of them; else the first half asks for what it reads itself, and memory is idle in the second.
  bool pairs;
};

inline constexpr Asking kAskNear = {1, 0, 0, false, 6 << 10, 6 << 10, 4 << 10, 2, 1, false};
// Zen 5.
inline constexpr Asking kAskZen5 = {1, 0, 0, false, 10 << 10, 6 << 10, 4 << 10, 2, 1, true};
// Zen 4: what is asked for near is in its hardware's way.
inline constexpr Asking kAskFar = {4, 2, 1, true, 8 << 10, 8 << 10, 8 << 10, 1, 1, false};

// Intel's processors with tiles: the one that was measured reads one row's weights a tenth to a
// third faster if it is asked for them.
inline constexpr Asking kAskIntel = {0, 0, 0, false, 3 << 10, 2 << 10, 4 << 10, 2, 2, false};

// No result depends on it.
struct Tiling {
  int register_lanes;  // Sums of 16 float lanes kept in flight, next to operands.
  int block_rows;      // The most rows of one of several blocks.
  int dot_chains;      // Sums of int8 products that keep its units busy, where they are measured.
  // Blocks of so many rows or more take int8 products of two panels at once, by halves of the rows,
  int dot_panel_rows;
  int dot_panel_rows_4;  // of weights of 4 bits; of 8 bits where a block is alone,
  int alone_panel_rows;  // from so many rows on.
  int tile_rows = 0;     // Blocks of so many rows or more go through matrix tiles; 0: none do;
  int tile_rows_8 = 0;   // and of weights of 8 bits, where there is but one block.
  Asking asking = kAskNear;
  int most_alone_rows = 0;  // The most rows of a block that is alone, if more.

  constexpr int alone_rows() const {
    return most_alone_rows > block_rows ? most_alone_rows : block_rows;
  }
};

inline constexpr Tiling kScalarTiling = {4, 4, 1, 99, 99, 99};
inline constexpr Tiling kAvx2Tiling = {6, 6, 2, 99, 99, 99};
inline constexpr Tiling kAvx512Tiling = {24, 12, 6, 99, 99, 99};
inline constexpr Tiling kAvx512VnniTiling = {24, 12, 12, 9, 5, 12, 0, 0, kAskZen5, 16};
inline constexpr Tiling kAvx512VnniZen4Tiling = {24, 12, 12, 9, 9, 9, 0, 0, kAskFar};
// Two panels by 14 rows are 28 chains, which leave registers for what is added to them. With 16
// rows some chains are in memory, which is still faster than two blocks of eight, whose tiles
// are half empty. With 17 rows or more all blocks have seven or more.
inline constexpr Tiling kAmxTiling = {24, 14, 12, 9, 9, 9, 7, 9, kAskIntel, 16};
// By the number of registers, and not by measuring.
inline constexpr Tiling kNeonTiling = {6, 6, 2, 99, 99, 99};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_TILING_H_
