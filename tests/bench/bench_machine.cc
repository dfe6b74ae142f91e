#include "tests/bench/bench_machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/measure.h"
#include "worker/backend/cpu/threads/thread_pool.h"

namespace strata::cpu {
namespace {

// The best of a few short runs of `run(count)`, in `ops` a count.
template <typename Run>
double BestOps(double ops, const Run& run, size_t count = size_t{1} << 18) {
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(run(count));
    best = std::max(best, ops * static_cast<double>(count) / Seconds(start));
  }
  return best;
}

}  // namespace

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const Machine& ThisMachine() {
  static const Machine machine = [] {
    Machine m;
    const char* const isa = std::getenv("STRATA_CPU_ISA");
    const auto kernels = ChooseKernels(isa == nullptr ? "" : isa);
    if (!kernels.ok()) {
      std::fprintf(stderr, "%s\n", std::string(kernels.status().message()).c_str());
      std::exit(2);
    }
    m.kernels = *kernels;
    ThreadPool pool(1, 1);
    m.read_bytes_per_s = BestReadBandwidth(*m.kernels, &pool, size_t{1} << 30, 2.0);
    const std::vector<uint8_t> cached(size_t{16} << 10, 1);
    const auto read_cached = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) {
        benchmark::DoNotOptimize(m.kernels->read_all(cached.data(), cached.size(), 0));
      }
      return 0;
    };
    m.cache_bytes_per_s = BestOps(static_cast<double>(cached.size()), read_cached, 4096);
    m.float_ops_per_s = BestOps(2.0 * 8 * kLanes, m.kernels->run_fmas);
    m.int8_ops_per_s = BestOps(2.0 * 8 * kLanes * 4, m.kernels->run_dots);
    return m;
  }();
  return machine;
}

void Advance(uint64_t* state) { *state = *state * 6364136223846793005u + 1442695040888963407u; }

std::vector<uint16_t> RandomHalves(size_t count) {
  std::vector<uint16_t> halves(count);
  uint64_t state = 1;
  for (uint16_t& half : halves) {
    Advance(&state);
    half = static_cast<uint16_t>(0x3c00 + (state >> 56) + ((state >> 40) & 0x8000));
  }
  return halves;
}

}  // namespace strata::cpu
