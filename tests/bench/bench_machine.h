// What this machine can do, which benchmarks of kernels compare with, and random numbers for them.
#ifndef STRATA_TESTS_BENCH_BENCH_MACHINE_H_
#define STRATA_TESTS_BENCH_BENCH_MACHINE_H_

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

struct Machine {
  const Kernels* kernels = nullptr;
  double read_bytes_per_s = 0;
  double cache_bytes_per_s = 0;  // Of the first one.
  double float_ops_per_s = 0;    // A multiplication and an addition are two.
  double int8_ops_per_s = 0;
};

// Measured once, with the kernels that STRATA_CPU_ISA names.
const Machine& ThisMachine();

double Seconds(std::chrono::steady_clock::time_point start);

// A linear congruential generator, whose high bits are the random ones.
void Advance(uint64_t* state);
// Random numbers of some format: halves of +-1.x/128, or what else is made of them.
std::vector<uint16_t> RandomHalves(size_t count);

// `bytes`: what a run reads and writes.
template <typename Run>
void TimeCached(benchmark::State& state, double bytes, const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  const double per_s = bytes * static_cast<double>(state.iterations()) / Seconds(start);
  state.counters["GB/s"] = per_s / 1e9;
  state.counters["of cache"] = per_s / ThisMachine().cache_bytes_per_s;
}

}  // namespace strata::cpu

#endif  // STRATA_TESTS_BENCH_BENCH_MACHINE_H_
