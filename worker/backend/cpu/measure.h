// What the planner wants to know of this machine.
#ifndef STRATA_WORKER_BACKEND_CPU_MEASURE_H_
#define STRATA_WORKER_BACKEND_CPU_MEASURE_H_

#include "worker/backend/backend.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/thread_pool.h"

namespace strata::cpu {

// Reads a buffer larger than the caches, and runs fmas in registers, with all threads of the pool,
// for about `seconds` in all. The best of several short runs of each: what others take meanwhile
// is no property of the machine.
DeviceSpeed MeasureSpeed(const Kernels& kernels, ThreadPool* pool, double seconds);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_MEASURE_H_
