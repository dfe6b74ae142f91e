#include "worker/backend/cpu/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>

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

constexpr size_t kFewestBytes = size_t{16} << 20;
constexpr size_t kPrefetchBytes[] = {0, 1024};
constexpr size_t kFmaCount = size_t{1} << 18;

}  // namespace

double MeasureReadBandwidth(const Kernels& kernels, ThreadPool* pool, size_t bytes,
                            double seconds) {
  const uint32_t threads = pool->threads();
  const size_t part = bytes / threads / 512 * 512;
  AlignedBuffer buffer;
  if (part == 0 || !buffer.Allocate(part * threads, "measuring", Fill::kNone).ok()) {
    return 0;
  }
  // Each thread writes what it will read: on its own memory node.
  pool->Run([&](uint32_t thread) { std::memset(buffer.as() + thread * part, 0, part); });
  std::atomic<float> kept{0};  // What the kernels return, so that they cannot be left out.
  double best = 0;
  for (const size_t ahead : kPrefetchBytes) {
    best = std::max(
        best,
        BestRate(seconds / std::size(kPrefetchBytes), static_cast<double>(part) * threads, [&] {
          pool->Run([&](uint32_t thread) {
            kept.store(kernels.read_all(buffer.as() + thread * part, part, ahead),
                       std::memory_order_relaxed);
          });
        }));
  }
  return best;
}

DeviceSpeed MeasureSpeed(const Kernels& kernels, ThreadPool* pool, double seconds, uint64_t bytes) {
  DeviceSpeed speed;
  const uint32_t threads = pool->threads();
  const uint64_t available = AvailableMemoryBytes();
  if (available != 0) {
    bytes = std::min(bytes, std::max<uint64_t>(available / 8, kFewestBytes));
  }
  speed.read_bytes_per_s = MeasureReadBandwidth(kernels, pool, bytes, seconds / 2);
  std::atomic<float> kept{0};
  const double flops = 2.0 * 8 * kLanes * kFmaCount * threads;
  speed.flops_per_s = BestRate(seconds / 2, flops, [&] {
    pool->Run(
        [&](uint32_t) { kept.store(kernels.run_fmas(kFmaCount), std::memory_order_relaxed); });
  });
  return speed;
}

}  // namespace strata::cpu
