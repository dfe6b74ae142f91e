// What deployments are made with, besides model and plan.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_OPTIONS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/clock.h"
#include "coordinator/deployment/load_retry.h"
#include "coordinator/engine/drafter.h"

namespace strata {

// Rotary tables in the blob store.
struct RotaryBlob {
  std::string sha256;
  uint64_t bytes = 0;
  std::shared_ptr<const std::string> keep;  // The store offers them as long as somebody has this.
};

struct DeploymentOptions {
  nanoseconds step_timeout = std::chrono::seconds(10);
  nanoseconds stall_timeout = std::chrono::seconds(2);  // EngineConfig::stall_timeout.
  nanoseconds recovery_timeout = milliseconds(800);
  // How long requests wait for other nodes, after the step timeout, where a lost node's layers fit
  // on none that is there (RECOVERY_MOVE).
  nanoseconds placement_timeout = std::chrono::minutes(2);
  // A model that may move waits so long for nodes that are not there when it is to be loaded.
  nanoseconds placement_grace = std::chrono::seconds(30);
  nanoseconds placement_again = std::chrono::seconds(5);  // Where none were found.
  // From a node's coming to the search for a faster placement of what may move: BetterSearch.
  nanoseconds better_after = std::chrono::minutes(5);
  uint32_t max_queued_requests = 256;
  uint64_t max_input_embedding_bytes = uint64_t{256} << 20;  // EngineConfig's.
  uint32_t max_batch_items = 256;
  uint32_t max_sessions = 1024;                       // Running at once.
  double kv_watermark = 0.05;                         // EngineConfig::kv_watermark.
  nanoseconds inter_token_target = milliseconds(20);  // EngineConfig::inter_token_target.
  bool prefix_cache = true;
  MakeDrafter make_drafter = NewDrafter;           // EngineConfig::make_drafter.
  uint64_t speculate_memory = uint64_t{16} << 20;  // EngineConfig::speculate_memory.
  // A worker that loads, or resizes, and gets no further for so long has failed at it; 0: never.
  nanoseconds load_timeout = std::chrono::minutes(5);
  LoadRetryOptions retry;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_OPTIONS_H_
