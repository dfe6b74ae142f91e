// The worker's flags, and what follows from them.
#ifndef STRATA_WORKER_SERVICE_WORKER_OPTIONS_H_
#define STRATA_WORKER_SERVICE_WORKER_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/app/flags.h"
#include "common/clock.h"
#include "common/rpc/transport.h"
#include "worker/backend/backend.h"
#include "worker/backend/device_choice.h"
#include "worker/ranks/rank_channels.h"

namespace strata {

struct WorkerOptions {
  std::string coordinator;
  std::string listen;     // "": chosen by the connection to the coordinator.
  std::string advertise;  // "": as listen.
  std::string data_dir;
  std::string name;
  uint64_t memory_bytes = 0;
  bool memory_given = true;          // Else of the default, which is for the host's memory.
  uint64_t host_memory_bytes = 0;    // Where memory_bytes are a device's own.
  uint64_t cache_limit_bytes = 0;    // 0: none.
  uint64_t standby_limit_bytes = 0;  // Of these; 0: no limit.
  uint64_t standby_reserve_bytes = uint64_t{1} << 30;
  std::string packed_cache = "on";
  uint64_t threads = 0;  // 0: the usable cores.
  std::string pin = "auto";
  uint64_t nice = 5;
  std::string backend = "auto";
  std::string devices_text;  // --devices.
  DeviceChoice devices;      // The same, read by CompleteWorkerOptions.
  std::string metrics_listen;
  TransportSecurity security;
  nanoseconds renew_before{0};
  std::string ranks_listen;  // "": at the address of the worker, at any port.
  RankPatience rank_patience;
  uint64_t max_links = 256;
  nanoseconds drain_timeout = std::chrono::seconds(30);
  std::string log_level = "info";
  std::string log_format = "auto";
  std::string isa;   // STRATA_CPU_ISA.
  FlagReport flags;  // What was given, and where.
};

// The least --memory: the process itself, its buffers, and some layers of a small model.
inline constexpr uint64_t kLeastMemoryBytes = uint64_t{96} << 20;

// How many bytes of memory are read to measure how fast that goes: `wanted`, less where --memory
// leaves less beside what the process has.
uint64_t MeasuredBytes(uint64_t wanted, uint64_t memory_bytes, uint64_t resident_bytes);

// What stages may take, and what of it is taken with nothing loaded; and the same of the host's
// memory beside a device's own, 0 where they are one.
struct MemoryBudget {
  uint64_t bytes = 0;
  uint64_t fixed_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t host_fixed_bytes = 0;
};
// Of the memory of a device that has its own: --memory where it was given, else nine tenths of it;
// and --host-memory beside it. Of several devices all that stages may take of each, together. Or of
// the host's, no more than a device that shares it may take. The process has `resident_bytes` of
// that and will take `buffer_bytes`.
MemoryBudget BudgetOf(const WorkerOptions& options, const DeviceFacts& device,
                      uint64_t resident_bytes, uint64_t buffer_bytes);

// Of --pin, which strata-worker bench has too, and of --devices, which selftest has besides.
extern const char kPinHelp[];
extern const char kDevicesHelp[];

// Reads command line, environment and configuration file. A value: exit with it at once.
std::optional<int> ParseWorkerFlags(int argc, const char* const* argv, const GetEnvFn& get_env,
                                    WorkerOptions* options);

// Fills what was left open: name, data directory, memory; and refuses what cannot be (wrong use).
absl::Status CompleteWorkerOptions(const char* (*get_env)(const char*), WorkerOptions* options);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_WORKER_OPTIONS_H_
