// What the planner wants to know of this machine.
#ifndef STRATA_WORKER_BACKEND_CPU_MEASURE_H_
#define STRATA_WORKER_BACKEND_CPU_MEASURE_H_

#include "worker/backend/backend.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/thread_pool.h"

namespace strata::cpu {

// Bandwidth of reading memory: the best of plain loops and of loops that prefetch, over `bytes` on
// large pages, more than the caches hold. Bytes a second; 0 when there is no memory for it.
double MeasureReadBandwidth(const Kernels& kernels, ThreadPool* pool, size_t bytes, double seconds);

// Reads `bytes`, less when memory is short, and runs fmas in registers, with all threads of the
// pool, for about `seconds` in all. The best of several short runs of each: what others take
// meanwhile is no property of the machine.
DeviceSpeed MeasureSpeed(const Kernels& kernels, ThreadPool* pool, double seconds, uint64_t bytes);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_MEASURE_H_
