// What only a CPU has beside the seam: where its threads are, and what reading memory gives.
#ifndef STRATA_WORKER_BACKEND_CPU_CPU_DEVICE_H_
#define STRATA_WORKER_BACKEND_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/backend.h"

namespace strata {

// Where a backend's threads and its memory are.
struct ThreadPlaces {
  std::vector<uint32_t> pinned_cores;  // One a thread that is pinned; empty: none is.
  uint32_t memory_nodes = 1;           // That weights are spread over.
  std::string text = "not pinned";     // For people.
};

// Reads memory between other work, so that this can be compared with what memory gives at that
// time.
class ReadProbe {
 public:
  virtual ~ReadProbe() = default;
  // Once through the memory, by each of some loops.
  virtual void Read() = 0;
  // Of the loop that did best; 0 before the first Read.
  virtual double MedianBytesPerSecond() const = 0;
};

class CpuDevice {
 public:
  virtual ~CpuDevice() = default;
  virtual ThreadPlaces places() const = 0;
  // Over `bytes` of memory, which it holds while it lives; not longer than the backend.
  virtual std::unique_ptr<ReadProbe> NewReadProbe(uint64_t bytes) = 0;
};

// For who measures a CPU; null: the backend is of another kind.
CpuDevice* CpuDeviceOf(Backend* backend);

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_CPU_CPU_DEVICE_H_
