// Matrix products and embeddings.
#include "common/model/code_books.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/panels-inl.h"

namespace strata::cuda {
namespace {

// A block of threads computes a panel of 16 outputs of up to 16 rows: first all of it the integers
// (or weights) of a chunk of inputs, then a thread for each row and output the chain over them,
// which has to be in order.
constexpr uint32_t kThreads = 256;
// Of a multiprocessor, which leaves a thread 80 registers.
constexpr uint32_t kResidentBlocks = 3;
constexpr uint32_t kTileRows = 16;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kChunkBlocks = kWarps;  // A warp takes a block of 32 inputs.
constexpr uint32_t kChunkInputs = 256;     // Of float activations.

// One of a product's parts.
struct Part {
  Matrix matrix;
  uint32_t first = 0;  // Its first place, and how many it has.
  uint32_t count = 0;
  size_t x_at = 0;  // Of its inputs and outputs.
  size_t out_at = 0;
};

__device__ inline Part PartOf(const Product& product, uint32_t index) {
  if (product.groups != nullptr) {
    const ExpertGroup group = product.groups[index];
    return {product.matrices[group.expert], group.first, group.count, 0, 0};
  }
  return {product.matrices != nullptr ? product.matrices[index] : product.matrix, 0, product.rows,
          index * product.x_step, index * product.out_step};
}

__device__ inline uint32_t InputRow(const Product& product, uint32_t place) {
  return product.row_at != nullptr ? product.row_at[place] : place;
}

__device__ inline void StoreOutput(const Product& product, const Part& part, uint32_t place,
                                   uint32_t output, float y) {
  if (output >= part.matrix.outputs) {
    return;
  }
  if (part.matrix.bias != nullptr) {
    y = y + part.matrix.bias[output];
  }
  float* const to = product.out + part.out_at + place * product.out_stride + output;
  *to = product.add ? *to + y : y;
}

// Of a block the sums of products with the integers of its first and second 16 inputs; of books of
// two numbers a value those with `high` and with `low`, of all.
template <FormatClass kClass>
__device__ inline void BlockSums(const Codes& codes, const uint8_t* lines, const int8_t* values,
                                 uint32_t odd, uint32_t n, int (&sums)[2]) {
  // A half of the warp takes every second line, so that the warp reads two lines at a time.
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(values);
  const auto add = [&](uint32_t word, const int8_t* table, int* sum) {
    const uint32_t integers = LoadIntegers<kClass>(lines, word, n, table);
    *sum = __dp4a(static_cast<int>(integers), static_cast<int>(words[word]), *sum);
  };
  for (uint32_t i = 0; i < 4; ++i) {
    // Words of the first half of the inputs are 0 to 3.
    const uint32_t word = kIsBytes<kClass> ? 2 * i + odd : 4 * (i / 2) + 2 * odd + i % 2;
    if (kClass == FormatClass::kCodes && codes.two) {
      add(word, codes.high, &sums[0]);
      add(word, codes.low, &sums[1]);
    } else {
      add(word, codes.high, &sums[word / 4]);
    }
  }
}

// The chain of one row and output over the blocks of a panel.
template <FormatClass kClass>
class Chain {
 public:
  // The next block; `sums` are BlockSums, `at` is the block's in the row's numbers.
  __device__ void Add(const Matrix& matrix, const Codes& codes, const BlockAt& block,
                      bool ends_panel, const QuantizedRows& x, size_t at, const int (&sums)[2],
                      uint32_t n) {
    const float d = x.scales[at];
    const bool ends_group = ends_panel || block.in_group + 1 == block.group_blocks;
    const int both = sums[0] + sums[1];
    if constexpr (kClass == FormatClass::kCodes) {
      AddCodes(codes, block, d, sums, n);
    } else if constexpr (kClass == FormatClass::kSuper2) {
      AddSuper2(block, ends_group, d, x, at, sums, n);
    } else if constexpr (kClass == FormatClass::kSuper6) {
      const float c0 = SuperFactor(block.head, 2 * block.in_group, n);
      const float c1 = SuperFactor(block.head, 2 * block.in_group + 1, n);
      const int first = sums[0] - 32 * x.half_sums[at];
      const int second = sums[1] - 32 * (x.sums[at] - x.half_sums[at]);
      const float sum = __fmaf_rn(static_cast<float>(second), c1, static_cast<float>(first) * c0);
      part_ = __fmaf_rn(sum, d, part_);
      if (ends_group) {
        acc_ = __fmaf_rn(part_, LoadFloat(block.head + 4 * n), acc_);
        part_ = 0;
      }
    } else if constexpr (kIsSuper<kClass>) {
      const ScaleAndBias scales = SuperScales(block.head, block.in_group, n);
      acc_ = __fmaf_rn(__fmaf_rn(static_cast<float>(both), d, 0.0f), scales.s, acc_);
      acc_ = __fmaf_rn(x.scaled_sums[at], scales.b, acc_);
    } else {
      // Bytes are multiplied as signed ones, which are 128 less.
      const int sum = kClass == FormatClass::kAffine8 ? both + 128 * x.sums[at] : both;
      part_ = __fmaf_rn(static_cast<float>(sum), d, part_);
      if constexpr (kIsAffine<kClass>) {
        minus_ = block.in_group == 0 ? x.scaled_sums[at] : minus_ + x.scaled_sums[at];
      }
      if (ends_group) {
        acc_ = __fmaf_rn(part_, LoadScale(matrix.scale_dtype, block.head, n), acc_);
        if constexpr (kIsAffine<kClass>) {
          const uint8_t* const biases = block.head + ScaleBytes(matrix.scale_dtype);
          acc_ = __fmaf_rn(minus_, LoadScale(matrix.scale_dtype, biases, n), acc_);
        }
        part_ = 0;
      }
    }
  }

  __device__ float End(const Codes& codes, const uint8_t* panel, uint32_t n) const {
    if constexpr (kClass == FormatClass::kCodes) {
      if (codes.scales == CodeScales::kFloat8Halves) {
        const float of_row = LoadFloat(panel + 4 * n);
        return acc_ * (codes.divides ? __fdiv_rn(codes.unit, of_row) : codes.unit * of_row);
      }
      return acc_ * codes.unit;
    }
    return acc_;
  }

 private:
  __device__ void AddCodes(const Codes& codes, const BlockAt& block, float d, const int (&sums)[2],
                           uint32_t n) {
    if (codes.scales == CodeScales::kFloat8Halves) {
      const float c0 = Float8ToFloat(block.head[2 * block.in_group * kLanes + n]);
      const float c1 = Float8ToFloat(block.head[(2 * block.in_group + 1) * kLanes + n]);
      const float first = static_cast<float>(sums[0]) * c0;
      acc_ = __fmaf_rn(__fmaf_rn(static_cast<float>(sums[1]), c1, first), d, acc_);
      return;
    }
    const float sum =
        codes.two ? __fmaf_rn(static_cast<float>(sums[0]), 256.0f, static_cast<float>(sums[1]))
                  : static_cast<float>(sums[0] + sums[1]);
    acc_ = __fmaf_rn(__fmaf_rn(sum, d, 0.0f), CodeScale(codes, block, n), acc_);
  }

  __device__ void AddSuper2(const BlockAt& block, bool ends_group, float d, const QuantizedRows& x,
                            size_t at, const int (&sums)[2], uint32_t n) {
    const uint8_t* const factors = block.head + 64 + 2 * block.in_group * kLanes + n;
    const auto low = [](uint8_t both) { return static_cast<float>(both & 15); };
    const auto high = [](uint8_t both) { return static_cast<float>(both >> 4); };
    const float first = static_cast<float>(sums[0]) * low(factors[0]);
    part_ =
        __fmaf_rn(__fmaf_rn(static_cast<float>(sums[1]), low(factors[kLanes]), first), d, part_);
    const int half = -32 * x.half_sums[at];
    const int rest = -32 * (x.sums[at] - x.half_sums[at]);
    const float minus = static_cast<float>(half) * high(factors[0]);
    minus_ =
        __fmaf_rn(__fmaf_rn(static_cast<float>(rest), high(factors[kLanes]), minus), d, minus_);
    if (ends_group) {
      acc_ = __fmaf_rn(part_, LoadHalf(block.head + 2 * n) * (1.0f / 16), acc_);
      acc_ = __fmaf_rn(minus_, LoadHalf(block.head + 2 * (kLanes + n)) * (1.0f / 32), acc_);
      part_ = 0;
      minus_ = 0;
    }
  }

  float acc_ = 0;
  float part_ = 0;
  float minus_ = 0;
};

// Parts of `most_rows` rows and fewer; it leaves out the others.
template <FormatClass kClass>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    MultiplyIntegers(Product product, QuantizedRows x, Codes codes, uint32_t most_rows) {
  // By block of the chunk, half of the warp that added them up, row, and output.
  __shared__ int sums[kChunkBlocks][2][kTileRows][kLanes][2];
  const Part part = PartOf(product, blockIdx.y);
  if (part.count > most_rows) {
    return;
  }
  const uint32_t panel_index = blockIdx.x;
  const uint8_t* const panel = part.matrix.data + panel_index * part.matrix.panel_bytes;
  const uint32_t n = threadIdx.x % kLanes;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t odd = threadIdx.x / kLanes % 2;
  const uint32_t own_row = threadIdx.x / kLanes;
  for (uint32_t tile = 0; tile < part.count; tile += kTileRows) {
    const uint32_t rows = part.count - tile < kTileRows ? part.count - tile : kTileRows;
    const auto row_of = [&](uint32_t r) {
      return size_t{InputRow(product, part.first + tile + r)};
    };
    Chain<kClass> chain;
    for (uint32_t first = 0; first < x.blocks; first += kChunkBlocks) {
      const uint32_t block = first + warp;
      if (block < x.blocks) {
        const BlockAt at = FindBlock<kClass>(part.matrix, codes, panel, block);
        for (uint32_t r = 0; r < rows; ++r) {
          int both[2] = {};
          BlockSums<kClass>(codes, at.lines,
                            x.values + (row_of(r) * x.blocks + block) * cpu::kQuantBlock, odd, n,
                            both);
          sums[warp][odd][r][n][0] = both[0];
          sums[warp][odd][r][n][1] = both[1];
        }
      }
      __syncthreads();
      for (uint32_t i = 0; own_row < rows && i < kChunkBlocks && first + i < x.blocks; ++i) {
        const int both[2] = {sums[i][0][own_row][n][0] + sums[i][1][own_row][n][0],
                             sums[i][0][own_row][n][1] + sums[i][1][own_row][n][1]};
        chain.Add(part.matrix, codes, FindBlock<kClass>(part.matrix, codes, panel, first + i),
                  first + i + 1 == x.blocks, x, row_of(own_row) * x.blocks + first + i, both, n);
      }
      __syncthreads();
    }
    if (own_row < rows) {
      StoreOutput(product, part, part.first + tile + own_row, panel_index * kLanes + n,
                  chain.End(codes, panel, n));
    }
  }
}

// Many rows by tensor cores: m16n8k32 is a panel's outputs, 8 rows and the 32 inputs of a block, so
// that its sums are those of BlockSums. A warp has a panel, and chains of up to kManyRows rows; it
// reads the panel once for all of them.
constexpr uint32_t kManyThreads = 128;
constexpr uint32_t kManyResidentBlocks = 2;  // The chains take most of 255 registers.
constexpr uint32_t kMmaRows = 8;
constexpr uint32_t kMmaTiles = 8;
constexpr uint32_t kManyRows = kMmaTiles * kMmaRows;

// What a lane has of a block's integers: words lane % 4 and 4 more, of outputs lane / 4 and 8 more;
// of books of two numbers both.
struct Fragments {
  uint32_t high[4];
  uint32_t low[4];
};
template <FormatClass kClass>
__device__ inline Fragments LoadFragments(const Codes& codes, const uint8_t* lines, uint32_t lane) {
  Fragments fragments;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t word = lane % 4 + i / 2 * 4;
    const uint32_t n = lane / 4 + i % 2 * 8;
    fragments.high[i] = LoadIntegers<kClass>(lines, word, n, codes.high);
    fragments.low[i] = kClass == FormatClass::kCodes && codes.two
                           ? LoadIntegers<kClass>(lines, word, n, codes.low)
                           : 0;
  }
  return fragments;
}

// BlockSums of the lane's four outputs and rows: `x` are its words of 8 rows.
template <FormatClass kClass>
__device__ inline void BlockSumsOfRows(const Codes& codes, const Fragments& fragments,
                                       const uint32_t (&x)[2], int (&sums)[2][4]) {
  constexpr bool kHalves = kClass == FormatClass::kSuper2 || kClass == FormatClass::kSuper6 ||
                           kClass == FormatClass::kCodes;
  if (kClass == FormatClass::kCodes && codes.two) {
    STRATA_MMA_S8_K32(sums[0], fragments.high, x);
    STRATA_MMA_S8_K32(sums[1], fragments.low, x);
  } else if (kHalves) {
    STRATA_MMA_S8_K16(sums[0], fragments.high, x);
    STRATA_MMA_S8_K16(sums[1], fragments.high + 2, x + 1);
  } else {
    STRATA_MMA_S8_K32(sums[0], fragments.high, x);
  }
}

// Parts of `least_rows` rows and more; it leaves out the others.
template <FormatClass kClass>
__global__ void __launch_bounds__(kManyThreads, kManyResidentBlocks)
    MultiplyManyRows(Product product, QuantizedRows x, Codes codes, uint32_t least_rows) {
  const Part part = PartOf(product, blockIdx.y);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t panel_index = blockIdx.x * (kManyThreads / 32) + threadIdx.x / 32;
  if (panel_index * kLanes >= part.matrix.outputs || part.count < least_rows) {
    return;
  }
  const uint8_t* const panel = part.matrix.data + panel_index * part.matrix.panel_bytes;
  const auto row_of = [&](uint32_t place) { return size_t{InputRow(product, part.first + place)}; };
  for (uint32_t first = 0; first < part.count; first += kManyRows) {
    Chain<kClass> chains[kMmaTiles][4];
    for (uint32_t block = 0; block < x.blocks; ++block) {
      const BlockAt at = FindBlock<kClass>(part.matrix, codes, panel, block);
      const Fragments fragments = LoadFragments<kClass>(codes, at.lines, lane);
      STRATA_UNROLL
      for (uint32_t tile = 0; tile < kMmaTiles; ++tile) {
        const uint32_t tile_row = first + tile * kMmaRows;
        if (tile_row >= part.count) {
          break;
        }
        uint32_t words[2] = {0, 0};
        if (tile_row + lane / 4 < part.count) {
          const size_t in = row_of(tile_row + lane / 4) * x.blocks + block;
          const auto* const values =
              reinterpret_cast<const uint32_t*>(x.values + in * cpu::kQuantBlock);
          words[0] = values[lane % 4];
          words[1] = values[lane % 4 + 4];
        }
        int sums[2][4] = {};
        BlockSumsOfRows<kClass>(codes, fragments, words, sums);
        STRATA_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t row = tile_row + lane % 4 * 2 + i % 2;
          if (row < part.count) {
            const int both[2] = {sums[0][i], sums[1][i]};
            chains[tile][i].Add(part.matrix, codes, at, block + 1 == x.blocks, x,
                                row_of(row) * x.blocks + block, both, lane / 4 + i / 2 * 8);
          }
        }
      }
    }
    STRATA_UNROLL
    for (uint32_t tile = 0; tile < kMmaTiles; ++tile) {
      STRATA_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = first + tile * kMmaRows + lane % 4 * 2 + i % 2;
        const uint32_t n = lane / 4 + i / 2 * 8;
        if (row < part.count) {
          StoreOutput(product, part, part.first + row, panel_index * kLanes + n,
                      chains[tile][i].End(codes, panel, n));
        }
      }
    }
  }
}

template <FormatClass kClass>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    MultiplyFloats(Product product, Codes codes) {
  __shared__ float weights[kChunkInputs][kLanes];
  const Part part = PartOf(product, blockIdx.y);
  const uint32_t panel_index = blockIdx.x;
  const uint8_t* const panel = part.matrix.data + panel_index * part.matrix.panel_bytes;
  const uint32_t inputs = part.matrix.inputs;
  const uint32_t n = threadIdx.x % kLanes;
  const uint32_t own_row = threadIdx.x / kLanes;
  for (uint32_t tile = 0; tile < part.count; tile += kTileRows) {
    const uint32_t rows = part.count - tile < kTileRows ? part.count - tile : kTileRows;
    const float* x = nullptr;
    if (own_row < rows) {
      x = product.x + part.x_at + InputRow(product, part.first + tile + own_row) * product.x_stride;
    }
    float acc = 0;
    for (uint32_t first = 0; first < inputs; first += kChunkInputs) {
      const uint32_t count = inputs - first < kChunkInputs ? inputs - first : kChunkInputs;
      for (uint32_t k = own_row; k < count; k += kTileRows) {
        weights[k][n] = LoadWeight<kClass>(part.matrix, codes, panel, first + k, n);
      }
      __syncthreads();
      for (uint32_t k = 0; own_row < rows && k < count; ++k) {
        acc = __fmaf_rn(x[first + k], weights[k][n], acc);
      }
      __syncthreads();
    }
    if (own_row < rows) {
      StoreOutput(product, part, part.first + tile + own_row, panel_index * kLanes + n, acc);
    }
  }
}

template <FormatClass kClass>
__global__ void __launch_bounds__(kThreads)
    EmbedPanels(Embedding embedding, Codes codes, const uint32_t* ids, float* out,
                size_t out_stride) {
  const uint32_t id = ids[blockIdx.x];
  const Matrix& matrix = embedding.matrix;
  const uint8_t* const panel = matrix.data + id / kLanes * matrix.panel_bytes;
  for (uint32_t k = threadIdx.x; k < embedding.width; k += blockDim.x) {
    const float value = LoadWeight<kClass>(matrix, codes, panel, k, id % kLanes);
    out[blockIdx.x * out_stride + k] = embedding.scale == 1 ? value : value * embedding.scale;
  }
}

__global__ void __launch_bounds__(kThreads)
    EmbedRows(Embedding embedding, const uint32_t* ids, float* out, size_t out_stride) {
  const size_t row = size_t{ids[blockIdx.x]} * embedding.width;
  for (uint32_t k = threadIdx.x; k < embedding.width; k += blockDim.x) {
    const float value =
        embedding.dtype == Dtype::kF32 ? LoadFloat(embedding.table + 4 * (row + k))
        : embedding.dtype == Dtype::kF16
            ? LoadHalf(embedding.table + 2 * (row + k))
            : Bfloat16ToFloat(*reinterpret_cast<const uint16_t*>(embedding.table + 2 * (row + k)));
    out[blockIdx.x * out_stride + k] = embedding.scale == 1 ? value : value * embedding.scale;
  }
}

Codes CodesOf(WeightFormat format) {
  Codes codes;
  if (!cpu::IsCodes(format)) {
    return codes;
  }
  const CodeBook& book = cpu::BookOf(format);
  codes.scales = book.scales;
  codes.rounding = book.rounding;
  codes.two = book.two;
  codes.divides = book.divides;
  codes.unit = book.unit;
  for (size_t i = 0; i < kCodes; ++i) {
    codes.high[i] = book.high[i];
    codes.low[i] = book.low[i];
    codes.values[i] = book.values[i];
  }
  return codes;
}

// function(ClassOf<class of the format>()).
template <FormatClass kClass_>
struct ClassOf {
  static constexpr FormatClass kClass = kClass_;
};
template <typename Function>
void ByClass(WeightFormat format, const Function& function) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return function(ClassOf<FormatClass::kFloats>());
    case WeightFormat::kInt8:
      return function(ClassOf<FormatClass::kInt8>());
    case WeightFormat::kAffine8:
      return function(ClassOf<FormatClass::kAffine8>());
    case WeightFormat::kAffine4:
      return function(ClassOf<FormatClass::kAffine4>());
    case WeightFormat::kSuper2:
      return function(ClassOf<FormatClass::kSuper2>());
    case WeightFormat::kSuper4:
      return function(ClassOf<FormatClass::kSuper4>());
    case WeightFormat::kSuper5:
      return function(ClassOf<FormatClass::kSuper5>());
    case WeightFormat::kSuper6:
      return function(ClassOf<FormatClass::kSuper6>());
    default:
      return function(ClassOf<FormatClass::kCodes>());
  }
}

}  // namespace

void Multiply(Stream stream, const Product& product) {
  const uint32_t panels = static_cast<uint32_t>((product.matrix.outputs + kLanes - 1) / kLanes);
  const dim3 grid(panels, product.parts);
  const Codes codes = CodesOf(product.matrix.format);
  ByClass(product.matrix.format, [&](auto of) {
    constexpr FormatClass kClass = decltype(of)::kClass;
    if constexpr (kClass != FormatClass::kFloats) {
      if (product.quantized != nullptr) {
        const QuantizedRows& x = *product.quantized;
        // How many rows an expert has is known on the device only, but for that there are no more
        // than in the batch: each kernel takes the experts that are its own.
        const bool some_many = product.rows >= kMmaRows;
        if (some_many) {
          constexpr uint32_t kPanels = kManyThreads / 32;
          STRATA_LAUNCH(MultiplyManyRows<kClass>,
                        dim3((panels + kPanels - 1) / kPanels, product.parts), kManyThreads, stream,
                        product, x, codes, kMmaRows);
        }
        if (!some_many || product.groups != nullptr) {
          STRATA_LAUNCH(MultiplyIntegers<kClass>, grid, kThreads, stream, product, x, codes,
                        kMmaRows - 1);
        }
        return;
      }
    }
    STRATA_LAUNCH(MultiplyFloats<kClass>, grid, kThreads, stream, product, codes);
  });
}

void Embed(Stream stream, const Embedding& embedding, const uint32_t* ids, uint32_t rows,
           float* out, size_t out_stride) {
  if (embedding.table != nullptr) {
    STRATA_LAUNCH(EmbedRows, rows, kThreads, stream, embedding, ids, out, out_stride);
    return;
  }
  const Codes codes = CodesOf(embedding.matrix.format);
  ByClass(embedding.matrix.format, [&](auto of) {
    STRATA_LAUNCH(EmbedPanels<decltype(of)::kClass>, rows, kThreads, stream, embedding, codes, ids,
                  out, out_stride);
  });
}

}  // namespace strata::cuda
