// What a stage's log says of the requests in a step: each line has the request's id.
// docs/OPERATIONS.md, "Logs".
#ifndef STRATA_WORKER_SERVICE_STEP_LOG_H_
#define STRATA_WORKER_SERVICE_STEP_LOG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/frame.h"
#include "worker/runner/shard_runner.h"

namespace strata {

struct StepPlace {
  std::string model;
  uint64_t deployment = 0;
  uint32_t stage = 0;
};

// Debug: whose sequences begin, are forked, or released by a step that came in.
void LogSequences(const StepPlace& place, const StepMessage& step);

// Warnings: whose items this stage rejected, and why.
void LogRejected(const StepPlace& place, uint64_t epoch, uint64_t step,
                 const ShardRunner::Output& output);

// Of KV from another stage: pages while that serves (`ahead`), or the rest.
struct CarriedKv {
  uint64_t epoch = 0;
  bool ahead = false;
  std::string from;  // The others' nodes.
  TakenKv taken;
  nanoseconds took{0};
  absl::Status status;
};
void LogCarried(const StepPlace& place, const CarriedKv& carried);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_STEP_LOG_H_
