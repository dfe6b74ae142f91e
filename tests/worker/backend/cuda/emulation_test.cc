#include "worker/backend/cuda/emulation/emulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace strata::cuda_emulation {
namespace {

constexpr unsigned kThreads = 96;

void Reverse(const int* from, int* to) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

void ReverseWithoutBarrier(const int* from, int* to) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = from[threadIdx.x];
  to[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

// The numbers from `first` on, through a kernel whose threads run in this order.
template <typename Kernel>
std::vector<int> RunInOrder(const Kernel& kernel, unsigned blocks, int first, uint64_t order) {
  std::vector<int> from(size_t{blocks} * kThreads);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = first + static_cast<int>(i);
  }
  std::vector<int> to(from.size());
  SetThreadOrder(order);
  Launch(blocks, kThreads, [&] { kernel(from.data(), to.data()); });
  SetThreadOrder(0);
  return to;
}

TEST(CudaEmulation, ThreadsMeetAtBarriersWhateverTheirOrder) {
  for (const uint64_t order : {0, 1, 2, 77}) {
    const std::vector<int> to = RunInOrder(Reverse, 3, 1000, order);
    for (unsigned i = 0; i < to.size(); ++i) {
      const unsigned block = i / kThreads;
      EXPECT_EQ(to[i], 1000 + static_cast<int>(block * kThreads + kThreads - 1 - i % kThreads));
    }
  }
}

TEST(CudaEmulation, AMissingBarrierGivesOtherResultsInAnotherOrder) {
  const std::vector<int> ascending = RunInOrder(ReverseWithoutBarrier, 1, 1000, 0);
  EXPECT_NE(ascending, RunInOrder(ReverseWithoutBarrier, 1, 2000, 1));
  EXPECT_NE(ascending, RunInOrder(Reverse, 1, 1000, 0));
}

TEST(CudaEmulation, ThreadsAreNumberedAsInCuda) {
  std::vector<unsigned> seen(2 * 3 * 4 * 5);
  Launch(dim3(2, 3), dim3(4, 5), [&] {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    ++seen[block * 20 + thread];
  });
  EXPECT_EQ(seen, std::vector<unsigned>(seen.size(), 1));
}

TEST(CudaEmulation, BytesAreMultipliedWithTheirSigns) {
  EXPECT_EQ(__dp4a(0x01ff7f80, 0x02ff7f7f, 5), 5 + 2 + 1 + 127 * 127 - 128 * 127);
}

// A matrix of bytes as fragments: `at` gives the byte of a row and an input.
template <typename At>
unsigned Word(const At& at, unsigned row, unsigned input) {
  unsigned word = 0;
  for (unsigned i = 0; i < 4; ++i) {
    word |= static_cast<unsigned>(static_cast<uint8_t>(at(row, input + i))) << 8 * i;
  }
  return word;
}

TEST(CudaEmulation, AWarpMultipliesBytesExactly) {
  const auto a_at = [](unsigned row, unsigned k) {
    return static_cast<int8_t>(row * 37 + k * 11 - 128);
  };
  const auto b_at = [](unsigned column, unsigned k) {
    return static_cast<int8_t>(column * 53 - k * 29);
  };
  for (const uint64_t order : {0, 1, 5}) {
    for (const unsigned inputs : {16u, 32u}) {
      std::vector<int> sums(16 * 8, 0);
      SetThreadOrder(order);
      Launch(1, 64, [&] {
        if (threadIdx.x >= 32) {
          return;  // A warp is by itself.
        }
        const unsigned row = threadIdx.x / 4;
        const unsigned at = threadIdx.x % 4;
        const unsigned a[4] = {Word(a_at, row, 4 * at), Word(a_at, row + 8, 4 * at),
                               Word(a_at, row, 16 + 4 * at), Word(a_at, row + 8, 16 + 4 * at)};
        const unsigned b[2] = {Word(b_at, row, 4 * at), Word(b_at, row, 16 + 4 * at)};
        int d[4] = {1, 2, 3, 4};
        if (inputs == 32) {
          STRATA_MMA_S8_K32(d, a, b);
        } else {
          STRATA_MMA_S8_K16(d, a, b);
        }
        for (unsigned i = 0; i < 4; ++i) {
          sums[(row + i / 2 * 8) * 8 + 2 * at + i % 2] = d[i] - 1 - static_cast<int>(i);
        }
      });
      SetThreadOrder(0);
      for (unsigned row = 0; row < 16; ++row) {
        for (unsigned column = 0; column < 8; ++column) {
          int sum = 0;
          for (unsigned k = 0; k < inputs; ++k) {
            sum += a_at(row, k) * b_at(column, k);
          }
          EXPECT_EQ(sums[row * 8 + column], sum) << row << " " << column;
        }
      }
    }
  }
}

using CudaEmulationDeathTest = testing::Test;

TEST(CudaEmulationDeathTest, ABarrierThatSomeThreadsEndWithoutIsFound) {
  EXPECT_DEATH(Launch(1, kThreads,
                      [] {
                        if (threadIdx.x < 32) return;
                        __syncthreads();
                      }),
               "which others ended without");
}

TEST(CudaEmulationDeathTest, BarriersInTwoPlacesAreFound) {
  EXPECT_DEATH(Launch(1, kThreads,
                      [] {
                        if (threadIdx.x < 32) {
                          __syncthreads();
                        } else {
                          __syncthreads();
                        }
                      }),
               "wait at two barriers");
}

TEST(CudaEmulationDeathTest, ALaunchThatNoGpuTakesIsFound) {
  EXPECT_DEATH(Launch(1, 1025, [] {}), "1025 threads");
  EXPECT_DEATH(Launch(dim3(1, 70000), 32, [] {}), "70000");
  EXPECT_DEATH(Launch(dim3(0), 32, [] {}), "a launch of 0");
}

TEST(CudaEmulationDeathTest, AProductThatSomeThreadsOfAWarpLeaveOutIsFound) {
  EXPECT_DEATH(Launch(1, 32,
                      [] {
                        if (threadIdx.x < 4) return;
                        int d[4] = {};
                        const unsigned a[4] = {};
                        const unsigned b[2] = {};
                        STRATA_MMA_S8_K32(d, a, b);
                      }),
               "which another of its threads does not reach");
}

}  // namespace
}  // namespace strata::cuda_emulation
