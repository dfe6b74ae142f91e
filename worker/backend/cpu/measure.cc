#include "worker/backend/cpu/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "common/platform/platform.h"
#include "worker/backend/cpu/aligned_buffer.h"

namespace strata::cpu {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Units a second of the fastest of the runs that fit in `seconds`; at least two.
template <typename Run>
double BestRate(double seconds, double units, const Run& run) {
  double best = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2 || SecondsSince(start) < seconds; ++i) {
    const auto before = std::chrono::steady_clock::now();
    run();
    best = std::max(best, units / std::max(SecondsSince(before), 1e-9));
  }
  return best;
}

constexpr size_t kMostBytes = size_t{256} << 20;
constexpr size_t kFewestBytes = size_t{16} << 20;
constexpr size_t kFmaCount = size_t{1} << 18;

}  // namespace

DeviceSpeed MeasureSpeed(const Kernels& kernels, ThreadPool* pool, double seconds) {
  DeviceSpeed speed;
  const uint32_t threads = pool->threads();
  // What the kernels return is kept, so that they cannot be left out.
  std::atomic<float> kept{0};
  AlignedBuffer buffer;
  const uint64_t available = AvailableMemoryBytes();
  const size_t wanted =
      available == 0 ? kMostBytes : std::clamp<size_t>(available / 8, kFewestBytes, kMostBytes);
  const size_t part = wanted / threads / 512 * 512;
  if (buffer.Allocate(part * threads, "measuring").ok()) {
    speed.read_bytes_per_s = BestRate(seconds / 2, static_cast<double>(part) * threads, [&] {
      pool->Run([&](uint32_t thread) {
        kept.store(kernels.read_all(buffer.as() + thread * part, part), std::memory_order_relaxed);
      });
    });
  }
  const double flops = 2.0 * 8 * kLanes * kFmaCount * threads;
  speed.flops_per_s = BestRate(seconds / 2, flops, [&] {
    pool->Run(
        [&](uint32_t) { kept.store(kernels.run_fmas(kFmaCount), std::memory_order_relaxed); });
  });
  return speed;
}

}  // namespace strata::cpu
