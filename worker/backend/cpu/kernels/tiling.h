// How much each instruction set takes at once, which is what its registers hold, and how memory is
// prefetched for a kind of processor.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_TILING_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_TILING_H_

#include <cstddef>

namespace strata::cpu {

// How weights that come from memory are prefetched ahead of their use. Hardware follows a stream by
// itself, if it may, and what a program prefetches takes buffers away from that; but where a line
// takes long to be used up, the processor's window holds too few of them to keep memory busy.
// Measured, see docs/TUNING.md. No result depends on it.
struct Prefetching {
  // Nothing is prefetched with up to so many rows of weights of more than 4 bits, of 4, of floats.
  int unprefetched_rows_8 = 1;
  int unprefetched_rows_4 = 0;
  int unprefetched_rows_float = 0;
  bool second_cache = false;  // What is prefetched goes to the second cache, else to the first.
  // So far ahead, of weights of more than 4 bits, of 4, of floats.
  int bytes = 6 << 10;
  int bytes_4 = 6 << 10;
  int float_bytes = 4 << 10;
  // Each line of integers in vectors of 256 bits prefetches the one so far ahead, however many
  // rows, unless other blocks of rows have just read it; 0: none does.
  int line_bytes = 0;
  // Streams of floats with few rows, and of integers, where registers hold the sums of all.
  int float_panels = 2;
  int quant_panels = 1;
  // Halves of a block's rows (Tiling::dot_panel_rows) prefetch the next pair of panels, each for
  // one of them; else the first half prefetches what it reads itself, and memory is idle in the
  // second.
  bool pairs = false;
  // Of several blocks of int8 rows the first two prefetch (a third of the lines of) the next panels
  // too, a half each; else memory is idle while all others read what the first has read.
  bool in_turn = false;
};

inline constexpr Prefetching kPrefetchNear;
// AVX2 takes so many instructions for each byte that the processor's window holds too few bytes of
// a panel to keep the memory busy, with one row too; with VNNI so it is on Intel's.
inline constexpr Prefetching kPrefetchEachLine = {.line_bytes = 3 << 10};
// Intel's read two panels of few rows faster than one (Zen 5 slower); of eight rows a tenth comes
// of prefetching in turn.
inline constexpr Prefetching kPrefetchEachLineIntel = {
    .line_bytes = 3 << 10, .quant_panels = 2, .in_turn = true};
inline constexpr Prefetching kPrefetchZen5 = {.bytes = 10 << 10, .pairs = true};
// Zen 4: what is prefetched near is in its hardware's way.
inline constexpr Prefetching kPrefetchFar = {.unprefetched_rows_8 = 4,
                                             .unprefetched_rows_4 = 2,
                                             .unprefetched_rows_float = 1,
                                             .second_cache = true,
                                             .bytes = 8 << 10,
                                             .bytes_4 = 8 << 10,
                                             .float_bytes = 8 << 10,
                                             .float_panels = 1};
// Intel's: those that were measured read one row's weights a tenth to a third faster if these are
// prefetched, with tiles and without.
inline constexpr Prefetching kPrefetchIntel = {
    .unprefetched_rows_8 = 0, .bytes = 3 << 10, .bytes_4 = 2 << 10, .quant_panels = 2};
inline constexpr Prefetching kPrefetchIntelPairs = [] {
  Prefetching prefetching = kPrefetchIntel;
  prefetching.pairs = true;
  return prefetching;
}();

// What dot products of 8-bit weights, stored as u < 256, and activations q are of.
enum class DotOperands {
  kUnsigned,  // u and q.
  kSigned,    // u - 128 and q.
  kFlipped,   // u - 128 and q, or where that is negative 127 - u, which is -1 - (u - 128), and -q.
};

// More rows than any block has.
inline constexpr int kNoRows = 99;

// No result depends on it.
struct Tiling {
  int register_lanes;       // Sums of 16 float lanes kept in flight, next to operands.
  int block_rows;           // The most rows of one of several blocks;
  int most_alone_rows = 0;  // of a block that is alone, if more.
  int dot_chains;  // Sums of int8 products that keep its units busy, where they are measured.
  // Blocks of so many rows or more take int8 products of two panels at once, by halves of the rows:
  // of weights of 8 bits, of 4, and of 8 where a block is alone.
  int dot_panel_rows = kNoRows;
  int dot_panel_rows_4 = kNoRows;
  int alone_panel_rows = kNoRows;
  // Of several blocks those of so many rows or more take int8 products of each panel by halves of
  // the rows, one after the other: a half's sums leave registers for what is added to them.
  int half_rows = kNoRows;
  // Each number of rows' products are a function of their own, never a part of one that has many of
  // them, whose registers the compiler then spends on what they share.
  bool tiles_apart = false;
  // With three rows or more groups of two blocks of 32 inputs are one piece of code, not turns of a
  // loop.
  bool pairs_of_blocks = false;
  // So many rows or more take 8-bit weights from tables of flipped ones; 0: none do.
  int table_rows = 0;
  int tile_rows = 0;    // Blocks of so many rows or more go through matrix tiles; 0: none do;
  int tile_rows_8 = 0;  // and of weights of 8 bits, where there is but one block.
  // What the panels of integers that stay in cache for many blocks (kManyBlocks) may take, if they
  // are more than four; eight at most.
  size_t many_blocks_bytes = 0;
  Prefetching prefetching = kPrefetchNear;

  constexpr int alone_rows() const {
    return most_alone_rows > block_rows ? most_alone_rows : block_rows;
  }
};

inline constexpr Tiling kScalarTiling = {.register_lanes = 4, .block_rows = 4, .dot_chains = 1};
// AMD's, measured on Zen 5, which takes it when told to. Halves of six rows are what integers are
// fastest by, and six what floats are.
inline constexpr Tiling kAvx2Tiling = {.register_lanes = 6,
                                       .block_rows = 6,
                                       .dot_chains = 2,
                                       .half_rows = 5,
                                       .tiles_apart = true,
                                       .pairs_of_blocks = true,
                                       .table_rows = 144,
                                       .many_blocks_bytes = size_t{320} << 10,
                                       .prefetching = kPrefetchEachLine};
// Measured on one that has tiles too. Several blocks have five rows at most, as six rows' sums
// leave registers short; but one block of six reads memory once, not twice.
inline constexpr Tiling kAvx2IntelTiling = {.register_lanes = 6,
                                            .block_rows = 5,
                                            .most_alone_rows = 6,
                                            .dot_chains = 2,
                                            .pairs_of_blocks = true,
                                            .many_blocks_bytes = size_t{2} << 20,
                                            .prefetching = kPrefetchEachLineIntel};
// VNNI where there is no AVX-512 is Intel's alone. Measured on one with tiles.
inline constexpr Tiling kAvxVnniTiling = {.register_lanes = 6,
                                          .block_rows = 6,
                                          .dot_chains = 6,
                                          .many_blocks_bytes = size_t{2} << 20,
                                          .prefetching = kPrefetchEachLineIntel};
// Without VNNI AVX-512 is Intel's alone.
inline constexpr Tiling kAvx512Tiling = {
    .register_lanes = 24, .block_rows = 12, .dot_chains = 6, .prefetching = kPrefetchIntel};
// Zen 5.
inline constexpr Tiling kAvx512VnniTiling = {.register_lanes = 24,
                                             .block_rows = 12,
                                             .most_alone_rows = 16,
                                             .dot_chains = 12,
                                             .dot_panel_rows = 9,
                                             .dot_panel_rows_4 = 5,
                                             .alone_panel_rows = 12,
                                             .prefetching = kPrefetchZen5};
// As Zen 5's but for its prefetching, which was measured on one that has tiles too.
inline constexpr Tiling kAvx512VnniIntelTiling = [] {
  Tiling tiling = kAvx512VnniTiling;
  tiling.prefetching = kPrefetchIntelPairs;
  return tiling;
}();
inline constexpr Tiling kAvx512VnniZen4Tiling = {.register_lanes = 24,
                                                 .block_rows = 12,
                                                 .dot_chains = 12,
                                                 .dot_panel_rows = 9,
                                                 .dot_panel_rows_4 = 9,
                                                 .alone_panel_rows = 9,
                                                 .prefetching = kPrefetchFar};
// Two panels by 14 rows are 28 chains, which leave registers for what is added to them. With 16
// rows some chains are in memory, which is still faster than two blocks of eight, whose tiles
// are half empty. With 17 rows or more all blocks have seven or more.
inline constexpr Tiling kAmxTiling = {.register_lanes = 24,
                                      .block_rows = 14,
                                      .most_alone_rows = 16,
                                      .dot_chains = 12,
                                      .dot_panel_rows = 9,
                                      .dot_panel_rows_4 = 9,
                                      .alone_panel_rows = 9,
                                      .tile_rows = 7,
                                      .tile_rows_8 = 9,
                                      .prefetching = kPrefetchIntel};
// By the number of registers, and not by measuring.
inline constexpr Tiling kNeonTiling = {.register_lanes = 6, .block_rows = 6, .dot_chains = 2};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_TILING_H_
