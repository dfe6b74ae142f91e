// A closed loop of clients, and what they saw.
#ifndef STRATA_CLI_BENCH_H_
#define STRATA_CLI_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sdk/cpp/strata.h"

namespace strata::cli {

struct BenchOptions {
  std::string model;
  uint32_t clients = 1;
  uint32_t requests = 1;
  uint32_t prompt_tokens = 1;
  uint32_t max_tokens = 1;
  uint32_t vocab_size = 1;
};

struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};

struct BenchResult {
  uint32_t requests = 0;  // Begun.
  uint32_t failed = 0;
  absl::Status first_error;
  double wall_s = 0;  // From the first request to the last answer.
  // Of answered requests, over the whole time.
  double prompt_tokens_per_s = 0;
  double generated_tokens_per_s = 0;
  Percentiles ttft_ms;         // Request sent to first token received.
  Percentiles inter_token_ms;  // Between tokens received; tokens of one message share its gap.
  std::string numerics_class;
};

// The value below or at which `share` of the values lie (nearest rank); 0 of none. Sorts.
double Percentile(std::vector<double>* values, double share);

// `clients` threads, each sending its next request when the one before was answered. Prompts are
// random ids, a different one each, the same in every run; the end of the answer is ignored, so
// that every answer has max_tokens. `on_done` (any thread, one at a time) gets the number done.
BenchResult RunBench(sdk::Client* client, const BenchOptions& options,
                     const sdk::Cancellation& cancellation,
                     const std::function<void(uint32_t done)>& on_done);

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_H_
