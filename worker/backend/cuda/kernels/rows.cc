// What is done to each row by itself: quantizing, norms, gated products, rotation, sums.
#include "worker/backend/cuda/kernels/floats-inl.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/lanes-inl.h"

namespace strata::cuda {
namespace {

constexpr uint32_t kThreads = 128;

// Threads of the whole grid, and this one's number among them.
__device__ inline size_t GridThread() { return size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
inline dim3 BlocksFor(size_t threads) {
  return dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
}

__global__ void __launch_bounds__(kThreads)
    QuantizeBlocks(const float* x, size_t stride, uint32_t rows, uint32_t inputs,
                   QuantizedRows to) {
  const size_t at = GridThread();
  if (at >= size_t{rows} * to.blocks) {
    return;
  }
  const uint32_t first = static_cast<uint32_t>(at % to.blocks) * cpu::kQuantBlock;
  const float* const from = x + at / to.blocks * stride + first;
  const uint32_t count = inputs - first < cpu::kQuantBlock ? inputs - first : cpu::kQuantBlock;
  float largest = 0;
  for (uint32_t k = 0; k < count; ++k) {
    largest = MaxOf(largest, __uint_as_float(__float_as_uint(from[k]) & 0x7fffffffu));
  }
  const bool none = largest < 0x1p-100f;
  float scale = none ? 0.0f : __fdiv_rn(largest, 127.0f);
  const float factor = none ? 0.0f : __fdiv_rn(127.0f, largest);
  // Adding 1.5 * 2^23 rounds to the nearest whole number and leaves it in the low bits.
  const float magic = 12582912.0f;
  float sum = 0;
  float half = 0;
  int8_t* const values = to.values + at * cpu::kQuantBlock;
  for (uint32_t k = 0; k < cpu::kQuantBlock; ++k) {
    const float rounded = (k < count ? from[k] : 0.0f) * factor + magic;
    values[k] = static_cast<int8_t>(__float_as_uint(rounded) & 255u);
    sum += rounded - magic;
    if (k + 1 == cpu::kQuantBlock / 2) {
      half = sum;
    }
  }
  if (sum != sum) {  // One of them is no number.
    for (uint32_t k = 0; k < cpu::kQuantBlock; ++k) {
      values[k] = 0;
    }
    scale = __uint_as_float(0x7fc00000u);
    sum = 0;
    half = 0;
  }
  to.scales[at] = scale;
  to.sums[at] = static_cast<int32_t>(sum);
  to.half_sums[at] = static_cast<int32_t>(half);
  to.scaled_sums[at] = sum * scale;
}

__global__ void __launch_bounds__(kThreads) NormParts(Norm norm) {
  __shared__ float lanes[kLanes];
  const uint32_t row = blockIdx.x / norm.parts;
  const size_t part = size_t{blockIdx.x % norm.parts} * norm.width;
  const float* const x = norm.x + row * norm.x_stride + part;
  float* const out = norm.out + row * norm.out_stride + part;
  if (threadIdx.x < kLanes) {
    float squares = 0;
    for (uint32_t k = threadIdx.x; k < norm.width; k += kLanes) {
      squares = __fmaf_rn(x[k], x[k], squares);
    }
    lanes[threadIdx.x] = squares;
  }
  __syncthreads();
  const float mean = __fdiv_rn(TreeSum(lanes), static_cast<float>(norm.width));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(mean + norm.eps));
  for (uint32_t k = threadIdx.x; k < norm.width; k += blockDim.x) {
    out[k] = x[k] * factor * (norm.plus + norm.weight[k]);
  }
}

__device__ inline float Gated(Gating gating, float clamp, float gain, float gate, float up) {
  switch (gating) {
    case Gating::kSilu:
      return __fdiv_rn(gate, 1.0f + Exp(0.0f - gate)) * up;
    case Gating::kGelu: {
      const float e = gate * __fmaf_rn(gate * gate, cpu::kGeluCubic, cpu::kGeluLinear);
      return __fdiv_rn(gate, 1.0f + Exp(e)) * up;
    }
    default: {
      const float x = AtMost(gate, clamp);
      return __fdiv_rn(x, 1.0f + Exp(x * -gain)) * (Clamp(up, clamp) + 1.0f);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    GateRows(Gating gating, float clamp, float gain, float* gate, const float* up, uint32_t rows,
             size_t stride, uint32_t width) {
  const size_t at = GridThread();
  if (at < size_t{rows} * width) {
    const size_t i = at / width * stride + at % width;
    gate[i] = Gated(gating, clamp, gain, gate[i], up[i]);
  }
}

__global__ void __launch_bounds__(kThreads)
    AddToRows(const float* x, size_t x_stride, float scale, float* to, size_t to_stride,
              uint32_t rows, uint32_t width) {
  const size_t at = GridThread();
  if (at < size_t{rows} * width) {
    const size_t row = at / width;
    const size_t i = at % width;
    to[row * to_stride + i] += x[row * x_stride + i] * scale;
  }
}

// By columns: a thread takes one column of all rows, in order, as rows may overlap their places.
__global__ void __launch_bounds__(kThreads)
    TakeColumns(const float* x, size_t stride, const uint32_t* rows, uint32_t count, uint32_t width,
                float* to, size_t to_stride) {
  const size_t i = GridThread();
  for (uint32_t row = 0; i < width && row < count; ++row) {
    to[row * to_stride + i] = x[rows[row] * stride + i];
  }
}

__global__ void __launch_bounds__(kThreads)
    CapLogits(float* x, size_t stride, uint32_t rows, uint32_t width, float divisor, float cap) {
  const size_t at = GridThread();
  if (at < size_t{rows} * width) {
    float* const value = x + at / width * stride + at % width;
    const float divided = divisor == 1 ? *value : __fdiv_rn(*value, divisor);
    *value = cap == 0 ? divided : SoftCap(divided, cap);
  }
}

__global__ void __launch_bounds__(kThreads) RotatePairs(Rotation rotation) {
  const size_t at = GridThread();
  const size_t pairs = size_t{rotation.heads} * rotation.half;
  if (at >= rotation.rows * pairs) {
    return;
  }
  const uint32_t row = static_cast<uint32_t>(at / pairs);
  const uint32_t i = at % rotation.half;
  float* const head =
      rotation.x + row * rotation.stride + at % pairs / rotation.half * rotation.head_stride;
  const RowPlace place = rotation.places[row];
  const float* const cosine =
      rotation.cosines[place.rotary_variant] + size_t{place.position} * rotation.half + i;
  const float c = cosine[0];
  const float s = cosine[rotation.sines];
  float* const first = rotation.neighbours ? head + 2 * i : head + i;
  float* const second = rotation.neighbours ? first + 1 : first + rotation.half;
  const float a = *first;
  const float b = *second;
  *first = a * c - b * s;
  *second = b * c + a * s;
}

__global__ void __launch_bounds__(kThreads) CopyOfHeads(HeadCopy copy) {
  const size_t at = GridThread();
  const size_t width = size_t{copy.heads} * copy.width;
  if (at < copy.rows * width) {
    const size_t row = at / width;
    const size_t head = at % width / copy.width;
    const size_t i = at % copy.width;
    copy.to[row * copy.to_stride + head * copy.to_head + i] =
        copy.from[row * copy.from_stride + head * copy.from_head + i];
  }
}

__global__ void __launch_bounds__(kThreads)
    GrowRows(float* x, size_t stride, uint32_t rows, uint32_t width, const RowPlace* places) {
  const size_t at = GridThread();
  if (at < size_t{rows} * width) {
    const size_t row = at / width;
    const float grown = places[row].grown;
    if (grown != 1) {
      x[row * stride + at % width] *= grown;
    }
  }
}

// A thread a dimension of a head, or of what is kept.
__global__ void __launch_bounds__(kThreads) AppendToPages(Append append) {
  const size_t at = GridThread();
  const size_t width = size_t{append.kv_heads} * append.head_dim;
  if (at >= append.rows * width) {
    return;
  }
  const uint32_t row = static_cast<uint32_t>(at / width);
  const uint32_t head = static_cast<uint32_t>(at % width / append.head_dim);
  const uint32_t d = static_cast<uint32_t>(at % append.head_dim);
  const uint32_t position = append.places[row].position;
  const uint32_t slot = position % kLanes;
  const RowPages table = append.tables[row];
  const uint32_t page = append.pages[table.at + position / kLanes - table.first_page];
  uint8_t* const to = append.kv.data + head * append.kv.heads_bytes + page * append.kv.head_bytes;
  const auto put = [&](uint8_t* begin, size_t index, float value) {
    if (append.kv.f16) {
      reinterpret_cast<uint16_t*>(begin)[index] = FloatToHalf(value);
    } else {
      reinterpret_cast<float*>(begin)[index] = value;
    }
  };
  const float key = append.k[row * append.k_stride + at % width];
  if (append.latent) {
    put(to, size_t{slot} * append.head_dim + d, key);
    return;
  }
  const size_t padded = (append.head_dim + kLanes - 1) / kLanes * kLanes;
  put(to, size_t{d} * kLanes + slot, key);
  put(to + append.kv.value_bytes, slot * padded + d, append.v[row * append.v_stride + at % width]);
}

}  // namespace

void Quantize(Stream stream, const float* x, size_t stride, uint32_t rows, uint32_t inputs,
              const QuantizedRows& to) {
  STRATA_LAUNCH(QuantizeBlocks, BlocksFor(size_t{rows} * to.blocks), kThreads, stream, x, stride,
                rows, inputs, to);
}

void NormRows(Stream stream, const Norm& norm) {
  STRATA_LAUNCH(NormParts, norm.rows * norm.parts, kThreads, stream, norm);
}

void Gate(Stream stream, Gating gating, float clamp, float gain, float* gate, const float* up,
          uint32_t rows, size_t stride, uint32_t width) {
  STRATA_LAUNCH(GateRows, BlocksFor(size_t{rows} * width), kThreads, stream, gating, clamp, gain,
                gate, up, rows, stride, width);
}

void AddRows(Stream stream, const float* x, size_t x_stride, float scale, float* to,
             size_t to_stride, uint32_t rows, uint32_t width) {
  STRATA_LAUNCH(AddToRows, BlocksFor(size_t{rows} * width), kThreads, stream, x, x_stride, scale,
                to, to_stride, rows, width);
}

void TakeRows(Stream stream, const float* x, size_t stride, const uint32_t* rows, uint32_t count,
              uint32_t width, float* to, size_t to_stride) {
  STRATA_LAUNCH(TakeColumns, BlocksFor(width), kThreads, stream, x, stride, rows, count, width, to,
                to_stride);
}

void CapRows(Stream stream, float* x, size_t stride, uint32_t rows, uint32_t width, float divisor,
             float cap) {
  STRATA_LAUNCH(CapLogits, BlocksFor(size_t{rows} * width), kThreads, stream, x, stride, rows,
                width, divisor, cap);
}

void Rotate(Stream stream, const Rotation& rotation) {
  const size_t pairs = size_t{rotation.rows} * rotation.heads * rotation.half;
  STRATA_LAUNCH(RotatePairs, BlocksFor(pairs), kThreads, stream, rotation);
}

void CopyHeads(Stream stream, const HeadCopy& copy) {
  const size_t threads = size_t{copy.rows} * copy.heads * copy.width;
  STRATA_LAUNCH(CopyOfHeads, BlocksFor(threads), kThreads, stream, copy);
}

void Grow(Stream stream, float* x, size_t stride, uint32_t rows, uint32_t width,
          const RowPlace* places) {
  STRATA_LAUNCH(GrowRows, BlocksFor(size_t{rows} * width), kThreads, stream, x, stride, rows, width,
                places);
}

void AppendKv(Stream stream, const Append& append) {
  const size_t threads = size_t{append.rows} * append.kv_heads * append.head_dim;
  STRATA_LAUNCH(AppendToPages, BlocksFor(threads), kThreads, stream, append);
}

}  // namespace strata::cuda
