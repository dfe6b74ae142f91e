// What the planner wants to know of this machine.
#ifndef STRATA_WORKER_BACKEND_CPU_MEASURE_H_
#define STRATA_WORKER_BACKEND_CPU_MEASURE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_device.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/cpu/threads/thread_pool.h"

namespace strata::cpu {

// Reads memory now and then, to say how fast that goes meanwhile: plainly, and asking for it near
// and far ahead, over more bytes than the caches hold, on large pages. One thread at a time.
class ReadMeter : public ReadProbe {
 public:
  // Both outlive it. Without memory for `bytes` it measures 0.
  ReadMeter(const Kernels& kernels, ThreadPool* pool, size_t bytes);

  void Read() override;
  double MedianBytesPerSecond() const override;
  double BestBytesPerSecond() const;

 private:
  static constexpr size_t kPrefetchBytes[] = {0, 512, 2048, 6144};
  static constexpr size_t kLoops = std::size(kPrefetchBytes);

  const Kernels& kernels_;
  ThreadPool* const pool_;
  size_t units_;
  AlignedBuffer buffer_;
  std::array<std::vector<double>, kLoops> rates_;
};

// The best of what a ReadMeter measures in about `seconds`. Bytes a second.
double BestReadBandwidth(const Kernels& kernels, ThreadPool* pool, size_t bytes, double seconds);

// Reads `bytes`, less when memory is short, and runs fmas in registers, with all threads of the
// pool, for about `seconds` in all. The best of several short runs of each: what others take
// meanwhile is no property of the machine.
DeviceSpeed MeasureSpeed(const Kernels& kernels, ThreadPool* pool, double seconds, uint64_t bytes);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_MEASURE_H_
