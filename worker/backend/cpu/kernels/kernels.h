// The CPU backend's inner loops: one table per instruction set, all giving the same bits.
//
// Numerics that every table keeps (version "cpu-2"):
// - Matrix product: out[row][n] = one chain acc = fma(x[row][k], w[n][k], acc) from +0 in ascending
//   k; then + bias[n] if there is one; then residual + that, if it is added to one.
// - Sums across a row or a page (RMS norm, softmax): lane i of 16 takes the elements i, i + 16, ...
//   in order; then lanes i and i + 8 are added, i and i + 4, i and i + 2, 0 and 1.
// - RMS norm: (x * (1 / sqrt(sum(x^2) / n + eps))) * weight, squares added by fma.
// - Attention, per (query, head): see attention-inl.h.
// - Soft-cap, of scores and of logits: cap * tanh(x / cap), tanh as in exp_constants.h.
// - Gated products: x / (1 + exp(e)) * up. SiLU: e = -x. GELU by tanh, since (1 + tanh u) / 2 = 1 /
//   (1 + exp(-2 u)): e = x * fma(x * x, kGeluCubic, kGeluLinear).
//   Clamped: x / (1 + exp(-gain * x)) * (up + 1), x = gate, `limit` at most, up within +-limit.
// - Mixtures of experts: see router.h and mixture_mlp.h.
// - Product of quantized weights and int8 activations: a row is cut into blocks of 32 inputs, the
//   last padded with zeros. a = max|x|; d = a / 127 and q = rne(x * (127 / a)), all 0 where a <
//   2^-100, d = NaN where a is no number. With the weights w = s * (u - zero) + b of a group:
//   part = 0, then per block in ascending k part = fma(float(sum of q * (u - zero)), d, part), the
//   sum exact; after the group's last block acc = fma(part, s, acc), and where there is a b,
//   acc = fma(t, b, acc), t being the blocks' d * float(sum of q), added one by one.
//   Super-blocks are groups of 32 inputs with s = d * c and b = -(e * m) (kSuper4, kSuper5), or of
//   256 with s = d, whose integers are c * (u - 32) (kSuper6). Of kSuper2 they are c * u, and acc =
//   fma(t, -e, acc) follows, t the chain t = fma(float(sum of q * m), d, t) over the 256.
//   Codes are groups of 32 inputs, whose integers are the numbers of the code book: n = high; or n
//   = 256 * high + low, when float(sum of q * n) is fma(float(sum of q * high), 256, float(sum of
//   q * low)). Where scales are 8-bit floats for 16 inputs, c and then c', a block is acc =
//   fma(fma(sum', c', sum * c), d, acc), of the sums of its halves. The last acc times the book's
//   unit is the result, or times that times the row's factor, or times that over the row's divisor.
// - Of quantized weights and float activations: w = fma(s, float(u - zero), b), as above; of
//   kSuper6 w = (d * c) * (u - 32); of codes w = s * value, of those with 8-bit scales s = factor *
//   c or c / divisor; and w rounded to bfloat16 or float16 where the book or the row says so.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_KERNELS_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/model/code_books.h"
#include "common/model/dtype.h"
#include "common/model/window.h"

namespace strata::cpu {

// Outputs of a weight panel, and lanes of every kernel.
inline constexpr size_t kLanes = 16;
// Keys of an attention span, by absolute position.
inline constexpr uint32_t kSpanKeys = 512;
inline constexpr uint32_t SpansOf(uint32_t keys) { return (keys + kSpanKeys - 1) / kSpanKeys; }
// Of the exponent in GELU: -2 sqrt(2 / pi), and 0.044715 times that.
inline constexpr float kGeluLinear = -0x1.988454p+0f;
inline constexpr float kGeluCubic = -0x1.2444f2p-4f;
// The most queries that attention takes at once, on any instruction set, and those that go through
// the spans together, so that K and V are read from memory once for all of them.
inline constexpr uint32_t kMaxQueryBlock = 8;
inline constexpr uint32_t kTileQueries = 32;
// Queries that are scored at once with keys that hold their values, a lane each.
inline constexpr uint32_t kLatentQueries = 16;

// How a panel keeps weights. The quantized ones keep them by groups of inputs, see PanelView.
enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kInt8,     // w = s * (u - 128); s is float32.
  kAffine8,  // w = s * u + b, u < 256.
  kAffine4,  // w = s * u + b, u < 16.
  // Codes of 4 bits, see common/model/code_books.h.
  kMxfp4,
  kNvfp4,
  kNvfp4Bf16,
  kIq4Nl,
  kIq4Xs,
  kNf4,
  kFp4,
  // ggml's super-blocks of 256 inputs, whose scales are scaled themselves.
  kSuper2,  // w = d * c * u - e * m, u < 4; c and m, below 16, for 16 inputs.
  kSuper4,  // The same, u < 16; c and m, below 64, for 32 inputs.
  kSuper5,  // The same, u < 32.
  kSuper6,  // w = d * c * (u - 32), u < 64; c, signed, for 16 inputs.
};
inline constexpr const char* WeightFormatName(WeightFormat format) {
  constexpr const char* kNames[] = {"f32",   "f16",    "bf16",       "int8",   "affine8", "affine4",
                                    "mxfp4", "nvfp4",  "nvfp4_bf16", "iq4_nl", "iq4_xs",  "nf4",
                                    "fp4",   "super2", "super4",     "super5", "super6"};
  return kNames[static_cast<size_t>(format)];
}
inline constexpr bool IsCodes(WeightFormat format) {
  return format >= WeightFormat::kMxfp4 && format <= WeightFormat::kFp4;
}
inline constexpr bool IsSuper(WeightFormat format) { return format >= WeightFormat::kSuper2; }
// Of a format of codes.
inline constexpr const CodeBook& BookOf(WeightFormat format) {
  constexpr const CodeBook* kBooks[] = {&kMxfp4Book, &kNvfp4Book, &kNvfp4Bf16Book, &kIq4NlBook,
                                        &kIq4XsBook, &kNf4Book,   &kFp4Book};
  return *kBooks[static_cast<size_t>(format) - static_cast<size_t>(WeightFormat::kMxfp4)];
}

// Inputs of a block: what one scale of the activations covers.
inline constexpr size_t kQuantBlock = 32;
// Blocks of a super-block, and what precedes its lines: 64 bytes of d (and e), 256 of c (and m).
inline constexpr size_t kSuperBlocks = 8;
inline constexpr size_t kSuperHeadBytes = 64 + 256;

// A matrix [outputs, inputs] in panels of 16 outputs, `panel_bytes` apart, the last padded with
// outputs that are zero. A panel of floats is [inputs][16]. A quantized panel is a chain of groups
// of `group` inputs (the last has what is left, rounded up to blocks of 32, padded with weights
// that do not count), and a group is
//   s [16], and b [16] where the format has it, both in `scale_dtype`; then lines of 64 bytes:
//   8 bits: line i is [16][4], the inputs 4 i to 4 i + 3 of every output;
//   4 bits: line i is [16][4], byte j the input 8 i + j in its low and 8 i + 4 + j in its high
//   half.
// Super-blocks are groups of 256 inputs, of which there are whole ones only:
//   d [16] and e [16] in float16, c [8][16] and m [8][16]; of kSuper6 d [16] in float32, c
//   [16][16]; of kSuper2 [16][16] bytes, c in the low half and m in the high one; then for each 32
//   inputs four lines of 4 bits, and, where there are more, one of fifth
//   bits or two of fifth and sixth ones: byte [n][j] of line i has, from its lowest bits on, those
//   of output n and of the inputs j, 4 + j, 8 + j and so on, of all 32, or of the 16 from 16 i on.
//   kSuper2 has the last two alone.
// Codes are groups of 256 inputs, the last of what is left, in whole blocks. Before the first group
// of kFloat8Halves there is a float32 of each row, [16], and of kFloat the rows' CodeRounding, [16]
// words, which is the same for all rows of a matrix. A group is its scales, with room for all 256,
// see CodeScales: kExponent [8][16] and kFloat8Halves [16][16] bytes as they are stored; kHalf
// [8][16], float16; kFloat [4][16], float32; kSuper [16], float32, and [8][16] signed bytes; then
// lines of 4 bits.
struct PanelView {
  WeightFormat format = WeightFormat::kF32;
  Dtype scale_dtype = Dtype::kF32;
  uint32_t group = 0;  // Inputs, a multiple of 32; 0: floats.
  const uint8_t* data = nullptr;
  size_t panel_bytes = 0;
  size_t outputs = 0;
  size_t inputs = 0;
  size_t panels() const { return (outputs + kLanes - 1) / kLanes; }
};

// Rows are multiplied in blocks: rows [first, first + count) of block b, see RowBlock. A block's
// activations lie [inputs][count] at packed + first * inputs.
struct RowBlock {
  uint32_t first;
  uint32_t count;
};
// The most rows of a block: of one that is alone, and, no more than that, of one of several.
struct BlockRows {
  uint32_t alone;
  uint32_t most;
};
// Cuts `rows` into the fewest blocks that may be, of nearly equal sizes.
constexpr uint32_t RowBlocks(uint32_t rows, BlockRows limits) {
  return rows <= limits.alone ? 1 : (rows + limits.most - 1) / limits.most;
}
inline RowBlock RowBlockAt(uint32_t rows, uint32_t blocks, uint32_t block) {
  const uint32_t begin = static_cast<uint32_t>(uint64_t{rows} * block / blocks);
  const uint32_t end = static_cast<uint32_t>(uint64_t{rows} * (block + 1) / blocks);
  return {begin, end - begin};
}

struct MatmulArgs {
  PanelView weights;
  // In the kernels' row blocks: by pack_rows, or by quantize_rows if `int8`.
  const uint8_t* packed = nullptr;
  bool int8 = false;  // Only with quantized weights.
  uint32_t rows = 0;
  const float* bias = nullptr;  // [outputs] or null.
  float* out = nullptr;         // [rows][out_stride]
  size_t out_stride = 0;
  bool add = false;  // To what `out` holds.
};

// How far one thread has prefetched the pages of its calls. On a line of its own, since it is
// written for each page.
struct alignas(64) PrefetchedPages {
  uint32_t turn = 0;  // Of the call that it prefetches; 0: none yet.
  uint32_t page = 0;  // The first of its pages that it has not prefetched.
  int ahead = 0;      // Pages that were prefetched and not computed yet.
};

// A tile of queries of one sequence and one KV head, in one layer.
struct AttendArgs {
  const float* q = nullptr;  // Query (row, head in group) at q + row * q_stride + head * head_dim.
  size_t q_stride = 0;
  uint32_t rows = 0;
  uint32_t group = 1;     // Query heads a KV head.
  uint32_t position = 0;  // Of row 0: it sees the keys to `position`, its own.
  uint32_t window = 0;    // See FirstSeen.
  uint32_t head_dim = 0;
  float scale = 0;
  float soft_cap = 0;  // 0: none.
  // Of each query head of the group a score without a value, beside those of its keys; or null.
  const float* sinks = nullptr;
  // Not 0: a value is the first so many dimensions of its key, a multiple of 16, and page p holds
  // [16][head_dim] and nothing else.
  uint32_t latent_values = 0;
  bool kv_f16 = true;
  // Page p of this layer and KV head begins at kv + p * page_bytes: K [head_dim][16], then at
  // value_bytes V [16][head_dim rounded up to 16].
  const uint8_t* kv = nullptr;
  size_t page_bytes = 0;
  size_t value_bytes = 0;
  // pages[i] holds 16 positions from 16 (first_page + i) on; all that a row sees are there.
  const uint32_t* pages = nullptr;
  uint32_t first_page = 0;
  float* out = nullptr;  // As q, in heads of ValueDim.
  size_t out_stride = 0;
  float* scratch = nullptr;  // AttendScratchFloats(head_dim, latent_values), of this thread.
  // With `partial`: only the spans [first_span, end_span) are computed and left there unmerged;
  // query i, span s at partial + (i * partial_spans + s) * PartialFloats(ValueDim).
  float* partial = nullptr;
  uint32_t partial_spans = 0;
  uint32_t first_span = 0;
  uint32_t end_span = 0;
  // Where one thread's calls follow each other: this one's turn, the call after it, if it is known,
  // and which of their pages were prefetched; or null. Pages are prefetched while those before them
  // are computed, whichever call they are of.
  uint32_t turn = 1;
  const AttendArgs* next = nullptr;  // Of a later turn.
  PrefetchedPages* prefetched = nullptr;
};

inline constexpr size_t ValueDim(const AttendArgs& args) {
  return args.latent_values != 0 ? args.latent_values : args.head_dim;
}
inline constexpr size_t PaddedHeadDim(size_t head_dim) {
  return (head_dim + kLanes - 1) / kLanes * kLanes;
}
// The weighted sum of the values, then the maximum and the sum of the weights.
inline constexpr size_t PartialFloats(size_t head_dim) { return PaddedHeadDim(head_dim) + kLanes; }
// Of a tile the queries and their sums; of a block of it scores and weights, page factors, and sums
// of a span; of latents a page of keys too.
inline constexpr size_t AttendScratchFloats(size_t head_dim, size_t latent_values = 0) {
  const bool latent = latent_values != 0;
  const size_t sums = PartialFloats(latent ? latent_values : head_dim);
  return (latent ? kLatentQueries : kTileQueries) * (PaddedHeadDim(head_dim) + sums) +
         (latent ? kLatentQueries : kMaxQueryBlock) * (kSpanKeys + 2 * (kSpanKeys / 16) + sums) +
         (latent ? 16 * head_dim : 0);
}

struct Kernels {
  const char* isa;
  BlockRows block_rows;
  uint32_t few_rows_panels;  // Panels of quantized weights that one row, or a few, takes at once.

  // The outputs of the panels [first, end), all rows.
  void (*matmul)(const MatmulArgs& args, size_t first, size_t end);
  // Packs one block: x [rows][stride] from the block's first row, to float32 [inputs][rows]. It
  // begins at `packed` + first row * 4 * inputs.
  void (*pack_rows)(const float* x, size_t stride, uint32_t rows, size_t inputs, uint8_t* packed);
  // Quantizes and packs one block, in a layout of the table's own: quantized_row_bytes(inputs) a
  // row.
  void (*quantize_rows)(const float* x, size_t stride, uint32_t rows, size_t inputs,
                        uint8_t* packed);
  // The same, but of the inputs' blocks of 32 only those of [first, end), which alone are read and
  // written: parts may be quantized at the same time.
  void (*quantize_part)(const float* x, size_t stride, uint32_t rows, size_t inputs, size_t first,
                        size_t end, uint8_t* packed);
  size_t (*quantized_row_bytes)(size_t inputs);
  // `plus` is 0, or 1 for norms whose weight is stored minus one.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float plus,
                   float* out);
  // out = silu(gate) * up, gelu(gate) * up. `out` may be `gate`.
  void (*swiglu)(const float* gate, const float* up, size_t n, float* out);
  void (*geglu)(const float* gate, const float* up, size_t n, float* out);
  void (*clamped_swiglu)(const float* gate, const float* up, size_t n, float limit, float gain,
                         float* out);
  // Of n logits, in place.
  void (*soft_cap)(float* x, size_t n, float cap);
  void (*attend)(const AttendArgs& args);
  // Merges the partial spans of all the tile's queries into `out`.
  void (*merge_spans)(const AttendArgs& args);
  // Appends one position of one KV head: k and v are [head_dim]; `page` is as in AttendArgs.
  void (*append_kv)(const float* k, const float* v, uint32_t head_dim, uint32_t slot, bool kv_f16,
                    uint8_t* page, size_t value_bytes);

  // Elementwise, for tests of the vector forms.
  void (*exp)(const float* x, size_t n, float* out);
  void (*to_f16)(const float* x, size_t n, uint16_t* out);
  void (*from_f16)(const uint16_t* x, size_t n, float* out);
  void (*from_bf16)(const uint16_t* x, size_t n, float* out);

  // For measuring: reads `bytes` (a multiple of 512), `ahead` of them prefetched; runs 16-lane
  // fmas, `count` times 8; runs dot products of 16 outputs and 4 inputs, `count` times 8.
  float (*read_all)(const uint8_t* data, size_t bytes, size_t ahead);
  float (*run_fmas)(size_t count);
  float (*run_dots)(size_t count);
};

// Null where the compiler or the build's machine type lacks it; the machine must have it too.
const Kernels* ScalarKernels();     // Without an instruction for fma.
const Kernels* ScalarFmaKernels();  // The same source, compiled for a machine with one.
const Kernels* Avx2Kernels();
const Kernels* Avx2IntelKernels();  // The same for processors that read memory as Intel's do.
const Kernels* AvxVnniKernels();
const Kernels* Avx512Kernels();
const Kernels* Avx512VnniKernels();
const Kernels* Avx512VnniZen4Kernels();   // The same for processors that read memory as Zen 4 does,
const Kernels* Avx512VnniIntelKernels();  // and as Intel's do.
const Kernels* AmxKernels();
const Kernels* NeonKernels();
const Kernels* NeonDotKernels();

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_KERNELS_H_
