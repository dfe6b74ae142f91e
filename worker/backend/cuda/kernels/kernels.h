// What the CUDA backend launches. Each function starts a kernel on a stream and returns; what it
// points to is on the device, and lasts until the kernel has run. Numerics are those of the CPU's
// kernels (cpu/kernels/kernels.h): the same operations in the same order, so that both backends are
// of one class. Compiled by nvcc, or for the host over emulation/emulation.h.
#ifndef STRATA_WORKER_BACKEND_CUDA_KERNELS_KERNELS_H_
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/model/step_limits.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cuda {

// A stream of a device (cudaStream_t); the emulation has none.
using Stream = void*;

using cpu::kLanes;
using cpu::kSpanKeys;
using cpu::WeightFormat;
static_assert(kSpanKeys == kAttentionSpanKeys, "what the planner counts by");

// A matrix [outputs, inputs] in the CPU's panels (PanelView), which a warp reads in whole lines.
struct Matrix {
  WeightFormat format = WeightFormat::kF32;
  Dtype scale_dtype = Dtype::kF32;
  uint32_t group = 0;  // Inputs; 0: floats.
  const uint8_t* data = nullptr;
  size_t panel_bytes = 0;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  const float* bias = nullptr;  // [outputs] or null.
};

// Rows quantized by blocks of 32 inputs, the last padded with zeros.
struct QuantizedRows {
  int8_t* values = nullptr;      // [rows][blocks * 32]
  float* scales = nullptr;       // [rows][blocks]
  float* scaled_sums = nullptr;  // [rows][blocks]: the sum of a block's values, times its scale.
  int32_t* sums = nullptr;       // [rows][blocks]: of a block's values,
  int32_t* half_sums = nullptr;  // and of the first 16 of them.
  uint32_t blocks = 0;           // Of a row.
};
inline constexpr uint32_t QuantBlocks(uint32_t inputs) {
  return (inputs + cpu::kQuantBlock - 1) / cpu::kQuantBlock;
}

// The rows of one expert: places [first, first + count) of its outputs.
struct ExpertGroup {
  uint32_t expert = 0;
  uint32_t first = 0;
  uint32_t count = 0;
};

// out[row][n] of `rows` rows: one matrix; or of each of `parts` matrices of the same shape and
// format, which lie behind `matrices`.
struct Product {
  Matrix matrix;  // The first.
  const Matrix* matrices = nullptr;
  uint32_t parts = 1;
  // Of parts that are heads: from one's inputs and outputs to the next one's. Of experts: which of
  // the matrices, and which places; groups with no rows are last. Place p takes the input row
  // row_at[p], or p where that is null.
  size_t x_step = 0;
  size_t out_step = 0;
  const ExpertGroup* groups = nullptr;
  const uint32_t* row_at = nullptr;
  uint32_t rows = 0;         // Of groups: the most that one may have.
  const float* x = nullptr;  // [rows][x_stride], where `quantized` is null.
  size_t x_stride = 0;
  const QuantizedRows* quantized = nullptr;  // On the host; of quantized weights only.
  float* out = nullptr;
  size_t out_stride = 0;
  bool add = false;  // To what `out` holds.
};
void Multiply(Stream stream, const Product& product);

// x [rows][stride] to `to`.
void Quantize(Stream stream, const float* x, size_t stride, uint32_t rows, uint32_t inputs,
              const QuantizedRows& to);

// RMS norm of `parts` parts of each row, each as wide as the weight; `plus` is 0, or 1 for weights
// that are stored minus one. `out` may be `x`.
struct Norm {
  const float* x = nullptr;  // [rows][x_stride]
  size_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t parts = 1;
  uint32_t width = 0;
  const float* weight = nullptr;  // [width]
  float eps = 0;
  float plus = 0;
  float* out = nullptr;  // [rows][out_stride]
  size_t out_stride = 0;
};
void NormRows(Stream stream, const Norm& norm);

// gate := the activated product of gate and up, [rows][stride], `width` of each row.
enum class Gating : uint8_t { kSilu, kGelu, kClampedSilu };
void Gate(Stream stream, Gating gating, float clamp, float gain, float* gate, const float* up,
          uint32_t rows, size_t stride, uint32_t width);

// to[row][i] += x[row][i] * scale.
void AddRows(Stream stream, const float* x, size_t x_stride, float scale, float* to,
             size_t to_stride, uint32_t rows, uint32_t width);
// to[i] = x[rows[i]], of `count` rows. Where `to` and `x` overlap rows ascend, and none lies below
// its place.
void TakeRows(Stream stream, const float* x, size_t stride, const uint32_t* rows, uint32_t count,
              uint32_t width, float* to, size_t to_stride);
// x[row][i] = x[row][i] / divisor (1: as it is), then capped (0: not).
void CapRows(Stream stream, float* x, size_t stride, uint32_t rows, uint32_t width, float divisor,
             float cap);

// out[row] = a token's embedding times `scale`: an output of `matrix`, or where `table` is not null
// a row of that, [vocab][width] of `dtype`.
struct Embedding {
  Matrix matrix;
  const uint8_t* table = nullptr;
  Dtype dtype = Dtype::kF32;
  uint32_t width = 0;
  float scale = 1;
};
void Embed(Stream stream, const Embedding& embedding, const uint32_t* ids, uint32_t rows,
           float* out, size_t out_stride);

// What the batch says of a row, and of a row's pages in one KV group.
struct RowPlace {
  uint32_t position = 0;
  uint32_t rotary_variant = 0;
  float grown = 1;  // Queries are multiplied by it once they are rotated.
};
struct RowPages {
  uint32_t first_page = 0;
  uint32_t at = 0;  // Of its page table in `pages`.
};

// Turns `heads` heads of each row in place, dimensions from `from` on of each.
struct Rotation {
  float* x = nullptr;  // [rows][stride]
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t head_stride = 0;  // From a head to the next.
  uint32_t half = 0;
  bool neighbours = false;
  const RowPlace* places = nullptr;
  const float* cosines[2] = {};  // By variant: [context][half]
  size_t sines = 0;              // From a cosine to its sine.
};
void Rotate(Stream stream, const Rotation& rotation);
// Copies `width` numbers of each head of each row.
struct HeadCopy {
  const float* from = nullptr;
  size_t from_stride = 0;  // Of rows, and of heads.
  size_t from_head = 0;
  float* to = nullptr;
  size_t to_stride = 0;
  size_t to_head = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t width = 0;
};
void CopyHeads(Stream stream, const HeadCopy& copy);
// x[row][i] *= places[row].grown, where that is not 1.
void Grow(Stream stream, float* x, size_t stride, uint32_t rows, uint32_t width,
          const RowPlace* places);

// Where one layer's keys and values are: as the CPU's pages (KvLayout), all pages of a head
// together, then those of the next.
struct KvPages {
  uint8_t* data = nullptr;
  size_t head_bytes = 0;   // From a head's page to its next.
  size_t heads_bytes = 0;  // From a head's first page to the next head's.
  size_t value_bytes = 0;
  bool f16 = true;
};
// Appends the rows' keys and values; with latent vectors `k` is what is kept and there is no `v`.
struct Append {
  const float* k = nullptr;
  size_t k_stride = 0;
  const float* v = nullptr;
  size_t v_stride = 0;
  uint32_t rows = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;  // Of what is kept, with latent vectors.
  bool latent = false;
  KvPages kv;
  const RowPlace* places = nullptr;
  const RowPages* tables = nullptr;
  const uint32_t* pages = nullptr;
};
void AppendKv(Stream stream, const Append& append);

// Attention of all rows and heads, as the CPU's attention-inl.h says.
struct Attention {
  const float* q = nullptr;  // [rows][q_stride], heads of head_dim.
  size_t q_stride = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t latent_values = 0;  // As in AttendArgs.
  uint32_t window = 0;
  float scale = 0;
  float soft_cap = 0;
  const float* sinks = nullptr;  // [heads] or null.
  KvPages kv;
  const RowPlace* places = nullptr;
  const RowPages* tables = nullptr;
  const uint32_t* pages = nullptr;
  float* out = nullptr;  // [rows][out_stride], heads of what values have.
  size_t out_stride = 0;
  // Where a row's spans are computed apart: [rows][heads][spans][PartialFloats], or null.
  float* partial = nullptr;
  uint32_t spans = 1;  // The most that any row sees.
};
inline uint32_t ValueDim(const Attention& attention) {
  return attention.latent_values != 0 ? attention.latent_values : attention.head_dim;
}
void Attend(Stream stream, const Attention& attention);

// Which experts compute a row, as the CPU's router.h says.
struct Routing {
  const float* logits = nullptr;  // [rows][stride]
  float* scratch = nullptr;       // The same shape.
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t experts = 0;
  uint32_t used = 0;
  bool sigmoid = false;
  bool softmax = false;            // Over all experts.
  bool softmax_of_chosen = false;  // Or over those chosen.
  bool renormalize = false;
  const float* corrections = nullptr;  // [experts] or null.
  uint32_t groups = 1;
  uint32_t groups_used = 1;
  uint32_t group_best = 1;
  float scale = 1;
  uint32_t* chosen = nullptr;  // [rows][used], ascending.
  float* weights = nullptr;    // [rows][used]
};
void Route(Stream stream, const Routing& routing);

// Orders places by expert, then by row: `groups` [min(experts, places)], those without rows last,
// `row_at` [rows * used] and `places` [rows][used].
struct Arrangement {
  const uint32_t* chosen = nullptr;  // [rows][used]
  uint32_t rows = 0;
  uint32_t used = 0;
  uint32_t experts = 0;
  uint32_t* counts = nullptr;  // [experts]: scratch.
  ExpertGroup* groups = nullptr;
  uint32_t most_groups = 0;
  uint32_t* row_at = nullptr;
  uint32_t* places = nullptr;
};
void Arrange(Stream stream, const Arrangement& arrangement);

// to[row][i] (from +0 where `clear`) += weight * from[place][i], by ascending expert.
void AddExperts(Stream stream, const float* from, size_t from_stride, const uint32_t* places,
                const float* weights, uint32_t used, uint32_t rows, uint32_t width, bool clear,
                float* to, size_t to_stride);

// The largest logit of each row, of equals the one of the lowest id; `usable`: all are below +inf,
// and one above -inf. Else the id is any.
struct RowChoice {
  uint32_t id = 0;
  uint32_t usable = 0;
};
void Choose(Stream stream, const float* logits, size_t stride, uint32_t rows, uint32_t width,
            RowChoice* choices);

// For measuring (measuring.cc), by `blocks` blocks. Reads all words; `out` is written in no case,
// but for all that a compiler knows.
void ReadWords(Stream stream, uint32_t blocks, const uint64_t* words, size_t count, uint32_t* out);
// Every thread computes kFmaChains chains of `rounds` float32 fmas. Returns how many these are.
inline constexpr uint32_t kFmaChains = 8;
uint64_t RunFmas(Stream stream, uint32_t blocks, uint32_t rounds, float* out);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_KERNELS_KERNELS_H_
