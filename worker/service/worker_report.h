// What a worker knows of itself when somebody looks.
#ifndef STRATA_WORKER_SERVICE_WORKER_REPORT_H_
#define STRATA_WORKER_SERVICE_WORKER_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/runner/shard_runner.h"
#include "worker/service/compute_queue.h"

namespace strata {

// A loaded stage.
struct StageReport {
  std::string model;
  uint32_t stage = 0;
  std::vector<std::string> kv_groups;  // Their names, by group.
  uint64_t weight_bytes = 0;
  uint64_t memory_bytes = 0;  // Weights, KV, buffers.
  uint64_t steps_waiting = 0;
  StageWork work;
  RunnerStats runner;
};

// Weights that went between this worker and others, since the start.
struct WeightTraffic {
  uint64_t fetched_bytes = 0;
  uint64_t sent_bytes = 0;
  uint64_t bad_blobs = 0;  // Thrown away: another digest.
};

struct WorkerReport {
  std::string node;
  std::string version;
  std::string backend;
  std::string isa;
  std::string platform;
  uint32_t threads = 0;
  bool joined = false;
  uint64_t memory_limit_bytes = 0;
  uint64_t resident_bytes = 0;
  uint64_t heap_bytes = 0;
  uint64_t device_active_bytes = 0;  // Of a backend's own allocator, and what that keeps.
  uint64_t device_kept_bytes = 0;
  uint64_t cache_bytes = 0;
  uint64_t fetched_bytes = 0;
  uint64_t standby_bytes = 0;  // Of cache_bytes, kept for other nodes' layers.
  WeightTraffic weight_traffic;
  // When its certificate ends, or an authority that this hangs on, in seconds since 1970; 0: it has
  // none.
  int64_t certificate_end_s = 0;
  std::vector<StageReport> stages;  // Of each model and stage one.
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_WORKER_REPORT_H_
