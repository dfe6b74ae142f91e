// The grid of threads that CUDA kernels run on, on a CPU: the same kernel sources, compiled as
// host C++, compute the same bits. One block runs at a time, each of its threads as a fiber that
// runs from one barrier to the next, in an order that is drawn: a kernel that lacks a barrier gives
// other results in another order. What no GPU would take ends the process, with a sentence:
// barriers that not all threads reach, launches that are too large. Tensor cores' products of
// integers, which are exact, are loops here. It shows nothing of speed, nor of memory's order
// between blocks that run at the same time. Launches on a stream (streams.h) run when it says.
#ifndef STRATA_WORKER_BACKEND_CUDA_EMULATION_EMULATION_H_
#define STRATA_WORKER_BACKEND_CUDA_EMULATION_EMULATION_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "worker/backend/cuda/emulation/streams.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block at a time on a thread of the host: a static is the block's.
#define __shared__ static thread_local
#define __syncthreads() ::strata::cuda_emulation::SyncThreads(__LINE__)
#define threadIdx (::strata::cuda_emulation::ThreadIndex())
#define blockIdx (::strata::cuda_emulation::BlockIndex())
#define blockDim (::strata::cuda_emulation::BlockSize())
#define gridDim (::strata::cuda_emulation::GridSize())

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr size_t count() const { return size_t{x} * y * z; }
};

namespace strata::cuda_emulation {

// Of the fiber that calls, or of its block.
dim3 ThreadIndex();
dim3 BlockIndex();
dim3 BlockSize();
dim3 GridSize();
// Waits until all threads of the block wait here; `line` tells one barrier of a kernel from
// another.
void SyncThreads(int line);

// Waits until all threads of the warp wait here; then `together` is called once, with what each
// brought, by lane.
void MeetWarp(int line, void* brought, void (*together)(void* const* of_lanes));

// mma.sync m16n8k32 (`inputs` 32) and m16n8k16 of signed bytes, by a warp: d += a b. What of a, b
// and d a lane has is as the PTX ISA says ("Matrix Fragments for mma.m16n8k16 / m16n8k32").
void MmaBytes(int line, int inputs, int* d, const unsigned* a, const unsigned* b);

// In what order the threads of a block run between barriers: 0 in ascending order, 1 in descending
// order, else shuffled anew each time, with this seed. Of this thread of the host.
void SetThreadOrder(uint64_t order);

// Runs a kernel's body for every thread of every block. Any thread of the host.
void Launch(dim3 grid, dim3 block, const std::function<void()>& body);
// On a stream (EmulatedStream), which copies `body`; or at once where it is null.
void Launch(dim3 grid, dim3 block, void* stream, std::function<void()> body);

// Warps' products of tensor cores so far, of this thread of the host.
uint64_t MmaCount();

}  // namespace strata::cuda_emulation

// What kernels use of CUDA's own functions.
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline unsigned __float_as_uint(float a) {
  unsigned bits;
  std::memcpy(&bits, &a, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned a) {
  float value;
  std::memcpy(&value, &a, sizeof(value));
  return value;
}
// c plus the products of the four signed bytes of a and b.
inline int __dp4a(int a, int b, int c) {
  for (int shift = 0; shift < 32; shift += 8) {
    c += static_cast<int8_t>(a >> shift) * static_cast<int8_t>(b >> shift);
  }
  return c;
}

#define STRATA_UNROLL
#define STRATA_MMA_S8_K32(d, a, b) ::strata::cuda_emulation::MmaBytes(__LINE__, 32, d, a, b)
#define STRATA_MMA_S8_K16(d, a, b) ::strata::cuda_emulation::MmaBytes(__LINE__, 16, d, a, b)

// As CUDA does, it copies the arguments when it is called.
#define STRATA_LAUNCH(kernel, grid, block, stream, ...)                                \
  ::strata::cuda_emulation::Launch(                                                    \
      grid, block, stream, [arguments = std::make_tuple(__VA_ARGS__)] {                \
        std::apply([](const auto&... of_kernel) { kernel(of_kernel...); }, arguments); \
      })

#endif  // STRATA_WORKER_BACKEND_CUDA_EMULATION_EMULATION_H_
