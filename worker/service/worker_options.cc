#include "worker/service/worker_options.h"

#include <algorithm>

#include "common/certificates/renewal.h"
#include "common/names.h"
#include "common/platform/platform.h"
#include "common/rpc/address.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {

const char kPinHelp[] =
    "Whether threads that compute are pinned to cores, and weights put on the memory nodes of "
    "those: on, off, or auto, where they are as many as the cores that the process may use, and "
    "those are only some of the machine's (taskset, a cpuset) or on several nodes";

const char kDevicesHelp[] =
    "Which GPUs compute, each a part of every stage: all, numbers (0,1), or these with what each "
    "has of a stage (0=2,1=1); else each has as much as it reads fast. Several need NVIDIA's NCCL. "
    "Default: the first GPU";

uint64_t MeasuredBytes(uint64_t wanted, uint64_t memory_bytes, uint64_t resident_bytes) {
  constexpr uint64_t kFewest = uint64_t{4} << 20;  // Fewer are not read from memory.
  const uint64_t free = memory_bytes > resident_bytes ? memory_bytes - resident_bytes : 0;
  return std::min(wanted, std::max(free / 2, kFewest));
}

MemoryBudget BudgetOf(const WorkerOptions& options, const DeviceFacts& device,
                      uint64_t resident_bytes, uint64_t buffer_bytes) {
  const uint64_t device_bytes = device.memory_bytes;
  if (device_bytes == 0) {
    const uint64_t all = device.shared_bytes == 0
                             ? options.memory_bytes
                             : std::min(options.memory_bytes, device.shared_bytes);
    return {all, resident_bytes + buffer_bytes};
  }
  if (!device.devices.empty()) {
    return {device_bytes, 0, options.host_memory_bytes, resident_bytes + buffer_bytes};
  }
  return {
      options.memory_given ? std::min(options.memory_bytes, device_bytes) : device_bytes / 10 * 9,
      0, options.host_memory_bytes, resident_bytes + buffer_bytes};
}

namespace {

absl::Status WrongUse(const std::string& what, const std::string& hint) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAGS", what).Hint(hint);
}

constexpr uint64_t kMostLinks = 1'000'000;

}  // namespace

std::optional<int> ParseWorkerFlags(int argc, const char* const* argv, const GetEnvFn& get_env,
                                    WorkerOptions* options) {
  Flags flags(
      "strata-worker", "STRATA_WORKER_", "Computes layers of models for a Strata cluster.",
      "strata-worker bench measures this machine without a cluster; see "
      "strata-worker bench --help. strata-worker selftest computes made-up models in parts of "
      "several sizes, and compares the bits. strata-worker examine, with the flags above, prints "
      "what a worker would find on this machine, for strata doctor.");
  flags.Text("coordinator", &options->coordinator, "Address of the coordinator, HOST:PORT");
  flags.Text("listen", &options->listen,
             "Address to listen on, ADDR:PORT; port 0 picks a free one. Default: the local address "
             "of the connection to the coordinator, port 7071 or the next free one");
  flags.Text("advertise", &options->advertise,
             "Address that coordinator and peers dial, HOST:PORT. Default: as --listen");
  flags.Text("data-dir", &options->data_dir,
             "Folder for cached weights. Default: as systemd says (STATE_DIRECTORY), else "
             "strata/worker-NAME in the XDG data home");
  flags.Text("name", &options->name, "Name of this node in the cluster. Default: the host's name");
  flags.Size(
      "memory", &options->memory_bytes,
      "The most that the process uses in all: weights, KV, buffers; with a GPU, of the GPU's "
      "memory, and with several of each one's",
      "80 % of the available memory, 90 % of a GPU's", kLeastMemoryBytes);
  flags.Size("host-memory", &options->host_memory_bytes,
             "With a GPU, the most that the process uses of the host's memory: weights on their "
             "way to the GPU a layer at a time, buffers. Without one --memory is that",
             "80 % of the available memory", kLeastMemoryBytes);
  flags.Size("cache-limit", &options->cache_limit_bytes,
             "The most that cached weights take on disk, packed ones included", "no limit");
  flags.Size("standby-limit", &options->standby_limit_bytes,
             "The most of --cache-limit that packed weights take which are kept for the loss of "
             "other nodes (--standby of strata model load)",
             "no limit");
  flags.Size("standby-reserve", &options->standby_reserve_bytes,
             "Of the disk of --data-dir, what stays free beside such weights: for what is loaded");
  flags.Choice("packed-cache", &options->packed_cache, {"on", "off"},
               "Whether weights are kept on disk as they were packed, beside what they were made "
               "of, so that the next start only maps them");
  flags.Number("threads", &options->threads, "Threads that compute; 0: the usable cores");
  flags.Choice("pin", &options->pin, {"auto", "on", "off"}, kPinHelp);
  flags.Number("nice", &options->nice,
               "How far the worker gives way to others on its cores, as nice(1) has it: a "
               "coordinator beside it decides and answers at once, and so does the rest of the "
               "machine",
               0, 19);
  flags.Choice("backend", &options->backend, {"auto", "cpu", "cuda", "mlx"},
               "What computes: auto, cpu, cuda or mlx");
  flags.Text("devices", &options->devices_text, kDevicesHelp);
  flags.Text("metrics-listen", &options->metrics_listen,
             "Where Prometheus reads /metrics (HTTP, no authentication), ADDR:PORT; port 0 picks a "
             "free one. Default: nowhere");
  flags.Text("ranks-listen", &options->ranks_listen,
             "Where the other ranks of a stage that several workers compute together connect, "
             "ADDR:PORT, at the host that is dialled; port 0 picks a free one for each stage. "
             "Default: the address of --listen, port 0");
  flags.Duration("rank-timeout", &options->rank_patience.call,
                 "Longest wait for another rank within a step, and half of the model's "
                 "--step-timeout at most; then the step fails, and the stage is placed anew",
                 std::chrono::milliseconds(100));
  flags.Duration("rank-silence", &options->rank_patience.silence,
                 "How long a rank waits between steps for a sign of the stage's first one, which "
                 "gives ten in its own --rank-silence; then it takes no more steps of it",
                 std::chrono::milliseconds(100));
  flags.Duration("rank-connect-timeout", &options->rank_patience.connect,
                 "How long all ranks of a stage may take to connect to one that waits for them",
                 std::chrono::milliseconds(100));
  flags.Text("tls-dir", &options->security.tls_dir,
             "Folder with ca.pem, cert.pem and key.pem: mutual TLS");
  flags.Duration(
      "renew-before", &options->renew_before,
      "How long before it ends the worker has its certificate renewed by the coordinator", {},
      kRenewedByDefault);
  flags.Duration("max-connection-age", &options->security.max_connection_age,
                 "With TLS, after how long a connection gives way to a new one, by the "
                 "certificates of then; what is open goes on",
                 std::chrono::seconds(1));
  flags.Switch("insecure", &options->security.insecure, "Plain text off loopback too");
  flags.Number("max-links", &options->max_links,
               "Most links of previous stages at the same time; one more is refused", 1,
               kMostLinks);
  flags.Duration("drain-timeout", &options->drain_timeout,
                 "Longest wait for requests in flight at SIGTERM");
  flags.Choice("log-level", &options->log_level, {"trace", "debug", "info", "warn", "error", "off"},
               "What is logged");
  flags.Choice("log-format", &options->log_format, {"auto", "text", "json"},
               "How it is logged; auto: text, and fields of its journal under systemd");
  if (const std::optional<int> exit = flags.Parse(argc, argv, get_env)) {
    return exit;
  }
  if (const char* isa = get_env("STRATA_CPU_ISA"); isa != nullptr) {
    options->isa = isa;
  }
  options->flags = flags.Report();
  return std::nullopt;
}

absl::Status CompleteWorkerOptions(const char* (*get_env)(const char*), WorkerOptions* options) {
  if (options->coordinator.empty()) {
    return WrongUse("--coordinator is missing", "give the coordinator's address, HOST:7070");
  }
  if (absl::Status dialled = ParseDialled(options->coordinator).status(); !dialled.ok()) {
    return Annotate(dialled, "--coordinator");
  }
  if (!options->listen.empty()) {
    RETURN_IF_ERROR(ParseHostPort(options->listen).status());
  }
  if (!options->ranks_listen.empty()) {
    RETURN_IF_ERROR(Annotate(ParseHostPort(options->ranks_listen).status(), "--ranks-listen"));
  }
  if (!options->advertise.empty()) {
    ASSIGN_OR_RETURN(const HostPort advertise, ParseHostPort(options->advertise));
    if (advertise.port == 0 || IsAnyAddress(advertise.host)) {
      return WrongUse("--advertise " + options->advertise + " is nothing that others can dial",
                      "give a host name or address of this machine, and the port");
    }
  }
  if (!options->metrics_listen.empty()) {
    RETURN_IF_ERROR(ParseHostPort(options->metrics_listen).status());
  }
  if (options->name.empty()) {
    options->name = HostName();
  }
  if (options->name.empty()) {
    return WrongUse("this host has no name", "give one with --name");
  }
  RETURN_IF_ERROR(CheckNodeName(options->name));
  if (options->data_dir.empty()) {
    options->data_dir = DefaultDataDir("worker-" + options->name, get_env);
  }
  ASSIGN_OR_RETURN(options->devices, ParseDevices(options->devices_text));
  const uint64_t available = AvailableMemoryBytes() / 5 * 4;
  if (options->memory_bytes == 0) {
    options->memory_bytes = available;
    options->memory_given = false;
  }
  if (options->host_memory_bytes == 0) {
    options->host_memory_bytes = available;
  }
  if (options->memory_bytes == 0) {
    return WrongUse("the available memory cannot be told", "say how much to use with --memory");
  }
  if (options->memory_bytes < kLeastMemoryBytes) {
    return WrongUse("80 % of the available memory are " + FormatSize(options->memory_bytes) +
                        ", less than the least that a worker needs, " +
                        FormatSize(kLeastMemoryBytes),
                    "free some, raise the limit of its cgroup or container, or run it elsewhere");
  }
  return absl::OkStatus();
}

}  // namespace strata
