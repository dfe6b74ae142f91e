// Attention over pages: what is computed, and in which order, is said in the CPU's
// attention-inl.h. A block of threads takes a query of one row and head through its spans; or one
// span of it, where a second kernel merges them.
#include "worker/backend/cuda/kernels/floats-inl.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/lanes-inl.h"

namespace strata::cuda {
namespace {

constexpr uint32_t kThreads = 128;
// Of a multiprocessor, which leaves a thread 64 registers.
constexpr uint32_t kResidentBlocks = 8;
constexpr uint32_t kSpanPages = kSpanKeys / kLanes;
// Of values; a thread keeps the sums of every kThreads'th.
constexpr uint32_t kMostValues = 1024;
constexpr uint32_t kOwnValues = kMostValues / kThreads;

// Keys [from, end) of a span that a query sees, counted from its first.
struct Keys {
  uint32_t from;
  uint32_t end;
};

// One query.
struct Query {
  uint32_t row;
  uint32_t head;
  uint32_t first_seen;
  uint32_t end;  // Of the keys that it sees.
};
__device__ inline Query QueryOf(const Attention& attention, uint32_t index) {
  const uint32_t row = index / attention.heads;
  const uint32_t position = attention.places[row].position;
  const uint32_t window = attention.window;
  const uint32_t first =
      window == 0 || position < window ? 0 : position + 1 - window;  // FirstSeen.
  return {row, index % attention.heads, first, position + 1};
}
__device__ inline Keys KeysInSpan(const Query& query, uint32_t span) {
  const uint32_t first = span * kSpanKeys;
  return {query.first_seen > first ? query.first_seen - first : 0,
          query.end - first < kSpanKeys ? query.end - first : kSpanKeys};
}

__device__ inline float LoadKv(bool f16, const uint8_t* begin, size_t index) {
  return f16 ? HalfToFloat(reinterpret_cast<const uint16_t*>(begin)[index])
             : reinterpret_cast<const float*>(begin)[index];
}
__device__ inline uint32_t ValuesOf(const Attention& attention) {
  return attention.latent_values != 0 ? attention.latent_values : attention.head_dim;
}
__device__ inline uint32_t Padded(uint32_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

// The page of a query's KV head that holds keys from `key` on.
__device__ inline const uint8_t* PageAt(const Attention& attention, const Query& query,
                                        uint32_t key) {
  const RowPages table = attention.tables[query.row];
  const uint32_t page = attention.pages[table.at + key / kLanes - table.first_page];
  const uint32_t kv_head = query.head / (attention.heads / attention.kv_heads);
  return attention.kv.data + kv_head * attention.kv.heads_bytes + page * attention.kv.head_bytes;
}

__device__ inline float Score(const Attention& attention, const Query& query, uint32_t key) {
  const uint8_t* const page = PageAt(attention, query, key);
  const float* const q =
      attention.q + query.row * attention.q_stride + query.head * attention.head_dim;
  const uint32_t slot = key % kLanes;
  // Latent keys lie one after another, others a dimension after another.
  const size_t step = attention.latent_values != 0 ? 1 : kLanes;
  const size_t begin = attention.latent_values != 0 ? size_t{slot} * attention.head_dim : slot;
  float acc = 0;
  for (uint32_t d = 0; d < attention.head_dim; ++d) {
    acc = __fmaf_rn(q[d], LoadKv(attention.kv.f16, page, begin + d * step), acc);
  }
  acc = acc * attention.scale;
  return attention.soft_cap == 0 ? acc : SoftCap(acc, attention.soft_cap);
}

__device__ inline float LoadValue(const Attention& attention, const uint8_t* page, uint32_t slot,
                                  uint32_t d) {
  if (attention.latent_values != 0) {
    return LoadKv(attention.kv.f16, page, size_t{slot} * attention.head_dim + d);
  }
  return LoadKv(attention.kv.f16, page + attention.kv.value_bytes,
                size_t{slot} * Padded(attention.head_dim) + d);
}

// What a block of threads shares of a span.
struct Span {
  float weights[kSpanKeys];   // Scores, then weights.
  float largest[kSpanPages];  // Of a page's scores, then of all to it.
  float factors[kSpanPages];  // Of each page.
  float sums[kSpanPages];     // Of a page's weights.
};

// m, l and o of a span: o of the values that are this thread's own.
struct Sums {
  float largest;
  float sum;
  float values[kOwnValues];
};

__device__ inline void AttendSpan(const Attention& attention, const Query& query, uint32_t span,
                                  Span* shared, Sums* sums) {
  const Keys keys = KeysInSpan(query, span);
  const uint32_t begin = span * kSpanKeys;
  const uint32_t first_page = keys.from / kLanes;
  const uint32_t end_page = (keys.end + kLanes - 1) / kLanes;
  const float lowest = __uint_as_float(0xff800000u);
  for (uint32_t i = first_page * kLanes + threadIdx.x; i < end_page * kLanes; i += blockDim.x) {
    const bool seen = i >= keys.from && i < keys.end;
    shared->weights[i] = seen ? Score(attention, query, begin + i) : lowest;
  }
  __syncthreads();
  for (uint32_t page = first_page + threadIdx.x; page < end_page; page += blockDim.x) {
    shared->largest[page] = LargestLane(shared->weights + page * kLanes);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float largest = lowest;
    for (uint32_t page = first_page; page < end_page; ++page) {
      const float grown = MaxOf(largest, shared->largest[page]);
      shared->factors[page] = largest - grown;
      shared->largest[page] = grown;
      largest = grown;
    }
  }
  __syncthreads();
  for (uint32_t i = first_page * kLanes + threadIdx.x; i < end_page * kLanes; i += blockDim.x) {
    shared->weights[i] = Exp(shared->weights[i] - shared->largest[i / kLanes]);
  }
  for (uint32_t page = first_page + threadIdx.x; page < end_page; page += blockDim.x) {
    shared->factors[page] = Exp(shared->factors[page]);
  }
  __syncthreads();
  for (uint32_t page = first_page + threadIdx.x; page < end_page; page += blockDim.x) {
    shared->sums[page] = TreeSum(shared->weights + page * kLanes);
  }
  __syncthreads();
  sums->largest = shared->largest[end_page - 1];
  sums->sum = 0;
  for (uint32_t page = first_page; page < end_page; ++page) {
    sums->sum = __fmaf_rn(sums->sum, shared->factors[page], shared->sums[page]);
  }
  const uint32_t dim = ValuesOf(attention);
  STRATA_UNROLL
  for (uint32_t own = 0; own < kOwnValues; ++own) {
    const uint32_t d = own * kThreads + threadIdx.x;
    if (d >= dim) {
      break;
    }
    float o = 0;
    for (uint32_t page = first_page; page < end_page; ++page) {
      o = o * shared->factors[page];
      const uint8_t* const values = PageAt(attention, query, begin + page * kLanes);
      const uint32_t from = keys.from > page * kLanes ? keys.from - page * kLanes : 0;
      const uint32_t end = keys.end - page * kLanes < kLanes ? keys.end - page * kLanes : kLanes;
      for (uint32_t j = from; j < end; ++j) {
        o = __fmaf_rn(shared->weights[page * kLanes + j], LoadValue(attention, values, j, d), o);
      }
    }
    sums->values[own] = o;
  }
  __syncthreads();  // Before the next span is written where this one was read.
}

// The later of two spans to the sums of those before it.
struct Merge {
  __device__ Merge(float total, float span)
      : largest(MaxOf(total, span)), old(Exp(total - largest)), now(Exp(span - largest)) {}
  __device__ float Of(float total, float span) const { return __fmaf_rn(total, old, span * now); }
  float largest;
  float old;
  float now;
};

// How the answer comes of the merged sums: its values times `factor`, over `sum`.
struct Answer {
  float sum;
  float factor;
};
__device__ inline Answer AnswerOf(const Attention& attention, uint32_t head, float largest,
                                  float sum) {
  if (attention.sinks == nullptr) {
    return {sum, 1.0f};
  }
  const float sink = attention.sinks[head];
  const float m = MaxOf(largest, sink);
  const float factor = Exp(largest - m);
  return {__fmaf_rn(sum, factor, Exp(sink - m)), factor};
}

__device__ inline float* OutputOf(const Attention& attention, const Query& query) {
  return attention.out + query.row * attention.out_stride + query.head * ValuesOf(attention);
}

__global__ void __launch_bounds__(kThreads, kResidentBlocks) AttendQueries(Attention attention) {
  __shared__ Span shared;
  const Query query = QueryOf(attention, blockIdx.x);
  const uint32_t dim = ValuesOf(attention);
  const uint32_t first = query.first_seen / kSpanKeys;
  const uint32_t end = (query.end + kSpanKeys - 1) / kSpanKeys;
  Sums total;
  AttendSpan(attention, query, first, &shared, &total);
  for (uint32_t span = first + 1; span < end; ++span) {
    Sums sums;
    AttendSpan(attention, query, span, &shared, &sums);
    const Merge merge(total.largest, sums.largest);
    total.largest = merge.largest;
    total.sum = merge.Of(total.sum, sums.sum);
    STRATA_UNROLL
    for (uint32_t own = 0; own < kOwnValues; ++own) {
      if (own * kThreads + threadIdx.x < dim) {
        total.values[own] = merge.Of(total.values[own], sums.values[own]);
      }
    }
  }
  const Answer answer = AnswerOf(attention, query.head, total.largest, total.sum);
  float* const out = OutputOf(attention, query);
  STRATA_UNROLL
  for (uint32_t own = 0; own < kOwnValues; ++own) {
    const uint32_t d = own * kThreads + threadIdx.x;
    if (d < dim) {
      out[d] = __fdiv_rn(total.values[own] * answer.factor, answer.sum);
    }
  }
}

// Where a query's span is, of those that are computed apart: its values, then m and l.
__device__ inline float* PartialOf(const Attention& attention, uint32_t query, uint32_t span) {
  const size_t stride = Padded(ValuesOf(attention)) + kLanes;
  return attention.partial + (size_t{query} * attention.spans + span) * stride;
}

__global__ void __launch_bounds__(kThreads, kResidentBlocks) AttendSpans(Attention attention) {
  __shared__ Span shared;
  const Query query = QueryOf(attention, blockIdx.x);
  const uint32_t span = query.first_seen / kSpanKeys + blockIdx.y;
  if (span >= (query.end + kSpanKeys - 1) / kSpanKeys) {
    return;
  }
  const uint32_t dim = ValuesOf(attention);
  Sums sums;
  AttendSpan(attention, query, span, &shared, &sums);
  float* const to = PartialOf(attention, blockIdx.x, blockIdx.y);
  STRATA_UNROLL
  for (uint32_t own = 0; own < kOwnValues; ++own) {
    if (own * kThreads + threadIdx.x < dim) {
      to[own * kThreads + threadIdx.x] = sums.values[own];
    }
  }
  if (threadIdx.x == 0) {
    to[Padded(dim)] = sums.largest;
    to[Padded(dim) + 1] = sums.sum;
  }
}

__global__ void __launch_bounds__(kThreads) MergeSpans(Attention attention) {
  const Query query = QueryOf(attention, blockIdx.x);
  const uint32_t dim = ValuesOf(attention);
  const uint32_t padded = Padded(dim);
  const uint32_t spans = (query.end + kSpanKeys - 1) / kSpanKeys - query.first_seen / kSpanKeys;
  for (uint32_t d = threadIdx.x; d < dim; d += blockDim.x) {
    const float* const first = PartialOf(attention, blockIdx.x, 0);
    float largest = first[padded];
    float sum = first[padded + 1];
    float value = first[d];
    for (uint32_t span = 1; span < spans; ++span) {
      const float* const next = PartialOf(attention, blockIdx.x, span);
      const Merge merge(largest, next[padded]);
      largest = merge.largest;
      sum = merge.Of(sum, next[padded + 1]);
      value = merge.Of(value, next[d]);
    }
    const Answer answer = AnswerOf(attention, query.head, largest, sum);
    OutputOf(attention, query)[d] = __fdiv_rn(value * answer.factor, answer.sum);
  }
}

}  // namespace

void Attend(Stream stream, const Attention& attention) {
  const uint32_t queries = attention.rows * attention.heads;
  if (attention.partial == nullptr) {
    STRATA_LAUNCH(AttendQueries, queries, kThreads, stream, attention);
    return;
  }
  STRATA_LAUNCH(AttendSpans, dim3(queries, attention.spans), kThreads, stream, attention);
  STRATA_LAUNCH(MergeSpans, queries, kThreads, stream, attention);
}

}  // namespace strata::cuda
