#include "worker/backend/cpu/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "common/platform/platform.h"

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
constexpr size_t kFmaCount = size_t{1} << 18;

}  // namespace

ReadMeter::ReadMeter(const Kernels& kernels, ThreadPool* pool, size_t bytes)
    : kernels_(kernels), pool_(pool), units_(bytes / kUnitBytes) {
  if (units_ == 0 || !buffer_.Allocate(units_ * kUnitBytes, "measuring", Fill::kNone).ok()) {
    units_ = 0;
    return;
  }
  // Each thread writes what it will read: on its own memory node.
  pool_->Run([this](uint32_t thread) {
    const size_t begin = ThreadPool::PartBegin(units_, thread, pool_->threads());
    const size_t end = ThreadPool::PartBegin(units_, thread + 1, pool_->threads());
    std::memset(buffer_.as() + begin * kUnitBytes, 0, (end - begin) * kUnitBytes);
  });
}

void ReadMeter::Read() {
  if (units_ == 0) {
    return;
  }
  std::atomic<float> kept{0};  // What the kernels return, so that they cannot be left out.
  for (size_t loop = 0; loop < kLoops; ++loop) {
    const auto before = std::chrono::steady_clock::now();
    pool_->Split(units_, [&](size_t begin, size_t end) {
      kept.store(kernels_.read_all(buffer_.as() + begin * kUnitBytes, (end - begin) * kUnitBytes,
                                   kPrefetchBytes[loop]),
                 std::memory_order_relaxed);
    });
    rates_[loop].push_back(static_cast<double>(units_ * kUnitBytes) /
                           std::max(SecondsSince(before), 1e-9));
  }
}

double ReadMeter::BestBytesPerSecond() const {
  double best = 0;
  for (const std::vector<double>& rates : rates_) {
    for (const double rate : rates) {
      best = std::max(best, rate);
    }
  }
  return best;
}

double ReadMeter::MedianBytesPerSecond() const {
  double best = 0;
  for (std::vector<double> rates : rates_) {
    if (!rates.empty()) {
      const auto middle = rates.begin() + static_cast<ptrdiff_t>(rates.size() / 2);
      std::nth_element(rates.begin(), middle, rates.end());
      best = std::max(best, *middle);
    }
  }
  return best;
}

double BestReadBandwidth(const Kernels& kernels, ThreadPool* pool, size_t bytes, double seconds) {
  ReadMeter meter(kernels, pool, bytes);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2 || SecondsSince(start) < seconds; ++i) {
    meter.Read();
  }
  return meter.BestBytesPerSecond();
}

DeviceSpeed MeasureSpeed(const Kernels& kernels, ThreadPool* pool, double seconds, uint64_t bytes) {
  DeviceSpeed speed;
  const uint32_t threads = pool->threads();
  const uint64_t available = AvailableMemoryBytes();
  if (available != 0) {
    bytes = std::min(bytes, std::max<uint64_t>(available / 8, kFewestBytes));
  }
  speed.read_bytes_per_s = BestReadBandwidth(kernels, pool, bytes, seconds / 2);
  std::atomic<float> kept{0};
  const double flops = 2.0 * 8 * kLanes * kFmaCount * threads;
  speed.flops_per_s = BestRate(seconds / 2, flops, [&] {
    pool->Run(
        [&](uint32_t) { kept.store(kernels.run_fmas(kFmaCount), std::memory_order_relaxed); });
  });
  return speed;
}

}  // namespace strata::cpu
