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
constexpr size_t kUnitBytes = size_t{64} << 10;  // Of reading, shared out as products are.
constexpr size_t kPrefetchBytes[] = {0, 1024};
constexpr size_t kFmaCount = size_t{1} << 18;

}  // namespace

double MeasureReadBandwidth(const Kernels& kernels, ThreadPool* pool, size_t bytes,
                            double seconds) {
  const uint32_t threads = pool->threads();
  const size_t units = bytes / kUnitBytes;
  AlignedBuffer buffer;
  if (units == 0 || !buffer.Allocate(units * kUnitBytes, "measuring", Fill::kNone).ok()) {
    return 0;
  }
  // Each thread writes what it will read: on its own memory node.
  pool->Run([&](uint32_t thread) {
    const size_t begin = ThreadPool::PartBegin(units, thread, threads);
    const size_t end = ThreadPool::PartBegin(units, thread + 1, threads);
    std::memset(buffer.as() + begin * kUnitBytes, 0, (end - begin) * kUnitBytes);
  });
  std::atomic<float> kept{0};  // What the kernels return, so that they cannot be left out.
  double best = 0;
  for (const size_t ahead : kPrefetchBytes) {
    best = std::max(
        best,
        BestRate(seconds / std::size(kPrefetchBytes), static_cast<double>(units * kUnitBytes), [&] {
          pool->Split(units, [&](size_t begin, size_t end) {
            kept.store(kernels.read_all(buffer.as() + begin * kUnitBytes,
                                        (end - begin) * kUnitBytes, ahead),
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
