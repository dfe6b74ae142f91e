// strata-worker bench: how fast this machine computes a stage, without a network.
#ifndef STRATA_WORKER_SERVICE_BENCH_H_
#define STRATA_WORKER_SERVICE_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/app/flags.h"

namespace strata {

struct BenchOptions {
  std::string model;  // A checkpoint folder; "": random weights of `shape`.
  std::string shape = "tiny11";
  std::string layers;  // "a-b"; "": all.
  std::string quantize = "none";
  std::string backend = "auto";
  std::string devices;  // As a worker's --devices.
  std::string isa;
  uint64_t threads = 0;
  std::string pin = "auto";
  std::vector<uint32_t> ranks;  // Threads of each, which are its share too; empty: none.
  uint64_t prompt = 512;        // Tokens.
  uint64_t generate = 64;       // Tokens of each sequence.
  std::vector<uint32_t> batch = {1, 2, 4, 8};  // Sequences generating at once.
};

struct BenchReport {
  struct Batch {
    uint32_t batch = 0;
    double generated_tokens_per_s = 0;  // Of all sequences.
    double step_ms = 0;                 // Median.
    double read_bytes_per_s = 0;        // Of weights and KV that steps must read; median.
    double bandwidth_share = 0;
  };
  std::string what;  // "tiny11 layers 0-21"
  std::string backend;
  std::string isa;
  uint32_t threads = 0;
  std::vector<uint32_t> pinned_cores;  // Of threads; empty: none is pinned.
  uint32_t memory_nodes = 1;           // That weights are spread over.
  std::string places;                  // The same, for people.
  uint64_t large_page_bytes = 0;       // Of the process, once loaded.
  double load_s = 0;
  uint64_t memory_bytes = 0;
  double prompt_tokens_per_s = 0;
  double generated_tokens_per_s = 0;      // With one sequence.
  double read_bandwidth_bytes_per_s = 0;  // A ReadProbe's, between the steps.
  double bandwidth_share = 0;             // Of that, by one sequence's read_bytes_per_s.
  std::vector<Batch> batch;
};

// Runs real steps through a ShardRunner: the prompt in chunks, then batches of decode steps.
absl::StatusOr<BenchReport> RunBench(const BenchOptions& options);

// One JSON object.
std::string ToJson(const BenchReport& report);
// For people.
std::string ToText(const BenchReport& report);

// argv[0] is "bench". The exit status.
int BenchMain(int argc, const char* const* argv, const GetEnvFn& get_env);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_BENCH_H_
