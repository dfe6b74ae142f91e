// Mixtures of experts: which experts compute a row, as the CPU's router.cc chooses them, the order
// of their rows, and the sum of what they give.
#include "common/model/expert_spec.h"
#include "worker/backend/cuda/kernels/floats-inl.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kResidentBlocks = 4;  // Of a multiprocessor.

__device__ inline bool Above(float a, float b) { return a > b || (a != a && b == b); }

// The `count` largest of `keys`, in descending order, of equal ones the lowest ids.
__device__ inline void TakeLargest(const float* keys, uint32_t size, uint32_t count, uint32_t* ids,
                                   float* largest) {
  for (uint32_t id = 0; id < size; ++id) {
    const float key = keys[id];
    if (id >= count && !Above(key, largest[count - 1])) {
      continue;
    }
    uint32_t at = id < count - 1 ? id : count - 1;
    for (; at > 0 && Above(key, largest[at - 1]); --at) {
      ids[at] = ids[at - 1];
      largest[at] = largest[at - 1];
    }
    ids[at] = id;
    largest[at] = key;
  }
}

__device__ inline float Sigmoid(float x) { return __fdiv_rn(1.0f, 1.0f + Exp(-x)); }

// Makes keys of experts whose groups are not used the least.
__device__ inline void DropGroups(const Routing& routing, float* keys) {
  const uint32_t size = routing.experts / routing.groups;
  float sums[kMostExpertGroups];
  uint32_t used[kMostExpertGroups];
  float largest[kMostExpertGroups];
  for (uint32_t group = 0; group < routing.groups; ++group) {
    TakeLargest(keys + group * size, size, routing.group_best, used, largest);
    sums[group] = largest[0];
    for (uint32_t i = 1; i < routing.group_best; ++i) {
      sums[group] += largest[i];
    }
  }
  TakeLargest(sums, routing.groups, routing.groups_used, used, largest);
  for (uint32_t group = 0; group < routing.groups; ++group) {
    bool keeps = false;
    for (uint32_t i = 0; i < routing.groups_used; ++i) {
      keeps = keeps || used[i] == group;
    }
    for (uint32_t i = 0; !keeps && i < size; ++i) {
      keys[group * size + i] = __uint_as_float(0xff800000u);
    }
  }
}

__device__ inline void DivideBySum(float sum, uint32_t count, float* weights) {
  for (uint32_t i = 0; i < count; ++i) {
    weights[i] = __fdiv_rn(weights[i], sum);
  }
}
__device__ inline float SumOf(const float* weights, uint32_t count) {
  float sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    sum += weights[i];
  }
  return sum;
}

__device__ inline void SortAscending(uint32_t* ids, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    const uint32_t id = ids[i];
    uint32_t at = i;
    for (; at > 0 && ids[at - 1] > id; --at) {
      ids[at] = ids[at - 1];
    }
    ids[at] = id;
  }
}

// A thread a row.
__global__ void __launch_bounds__(kThreads, kResidentBlocks) RouteRows(Routing routing) {
  const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= routing.rows) {
    return;
  }
  const float* const logits = routing.logits + row * routing.stride;
  uint32_t* const chosen = routing.chosen + size_t{row} * routing.used;
  float* const weights = routing.weights + size_t{row} * routing.used;
  const float* keys = logits;
  if (routing.sigmoid || routing.groups > 1) {
    float* const scratch = routing.scratch + row * routing.stride;
    for (uint32_t expert = 0; expert < routing.experts; ++expert) {
      const float score = routing.sigmoid ? Sigmoid(logits[expert]) : logits[expert];
      scratch[expert] =
          score + (routing.corrections != nullptr ? routing.corrections[expert] : 0.0f);
    }
    if (routing.groups > 1) {
      DropGroups(routing, scratch);
    }
    keys = scratch;
  }
  TakeLargest(keys, routing.experts, routing.used, chosen, weights);
  const float largest = logits[chosen[0]];
  SortAscending(chosen, routing.used);
  for (uint32_t i = 0; i < routing.used; ++i) {
    const float logit = logits[chosen[i]];
    weights[i] = routing.sigmoid ? Sigmoid(logit) : Exp(logit - largest);
  }
  if (routing.softmax) {
    float sum = 0;
    for (uint32_t expert = 0; expert < routing.experts; ++expert) {
      sum += Exp(logits[expert] - largest);
    }
    DivideBySum(sum, routing.used, weights);
  } else if (routing.softmax_of_chosen) {
    DivideBySum(SumOf(weights, routing.used), routing.used, weights);
  }
  if (routing.renormalize) {
    DivideBySum(SumOf(weights, routing.used), routing.used, weights);
  }
  for (uint32_t i = 0; routing.scale != 1 && i < routing.used; ++i) {
    weights[i] *= routing.scale;
  }
}

// One block; a thread takes every kThreads'th expert.
__global__ void __launch_bounds__(kThreads) ArrangeRows(Arrangement arrangement) {
  const uint32_t places = arrangement.rows * arrangement.used;
  for (uint32_t expert = threadIdx.x; expert < arrangement.experts; expert += blockDim.x) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < places; ++i) {
      count += arrangement.chosen[i] == expert ? 1 : 0;
    }
    arrangement.counts[expert] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t group = 0;
    uint32_t first = 0;
    for (uint32_t expert = 0; expert < arrangement.experts; ++expert) {
      const uint32_t count = arrangement.counts[expert];
      arrangement.counts[expert] = first;
      if (count > 0) {
        arrangement.groups[group++] = {expert, first, count};
        first += count;
      }
    }
    for (; group < arrangement.most_groups; ++group) {
      arrangement.groups[group] = {0, 0, 0};
    }
  }
  __syncthreads();
  for (uint32_t expert = threadIdx.x; expert < arrangement.experts; expert += blockDim.x) {
    uint32_t next = arrangement.counts[expert];
    for (uint32_t i = 0; i < places; ++i) {
      if (arrangement.chosen[i] == expert) {
        arrangement.places[i] = next;
        arrangement.row_at[next] = i / arrangement.used;
        ++next;
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    AddWeighted(const float* from, size_t from_stride, const uint32_t* places, const float* weights,
                uint32_t used, uint32_t rows, uint32_t width, bool clear, float* to,
                size_t to_stride) {
  const size_t at = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= size_t{rows} * width) {
    return;
  }
  const size_t row = at / width;
  const size_t i = at % width;
  float sum = clear ? 0.0f : to[row * to_stride + i];
  for (uint32_t e = 0; e < used; ++e) {
    const size_t chosen = row * used + e;
    sum += weights[chosen] * from[places[chosen] * from_stride + i];
  }
  to[row * to_stride + i] = sum;
}

}  // namespace

void Route(Stream stream, const Routing& routing) {
  STRATA_LAUNCH(RouteRows, (routing.rows + kThreads - 1) / kThreads, kThreads, stream, routing);
}

void Arrange(Stream stream, const Arrangement& arrangement) {
  STRATA_LAUNCH(ArrangeRows, 1, kThreads, stream, arrangement);
}

void AddExperts(Stream stream, const float* from, size_t from_stride, const uint32_t* places,
                const float* weights, uint32_t used, uint32_t rows, uint32_t width, bool clear,
                float* to, size_t to_stride) {
  const size_t threads = size_t{rows} * width;
  STRATA_LAUNCH(AddWeighted, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads,
                stream, from, from_stride, places, weights, used, rows, width, clear, to,
                to_stride);
}

}  // namespace strata::cuda
