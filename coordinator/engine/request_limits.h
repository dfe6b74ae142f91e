// Which requests an engine can ever serve, and what the others are refused with.
#ifndef STRATA_COORDINATOR_ENGINE_REQUEST_LIMITS_H_
#define STRATA_COORDINATOR_ENGINE_REQUEST_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/kv_ledger.h"
#include "coordinator/engine/live_session.h"

namespace strata {

// One thread.
class RequestLimits {
 public:
  // Both outlive this.
  RequestLimits(const EngineConfig& config, const KvLedger& ledger)
      : config_(config), ledger_(ledger) {}

  // Whether the request is well formed and asks for what there is; `in_flight`: a live session has
  // its key; `embedding_bytes`: of those that live. See Engine::Submit.
  absl::Status Check(const SessionRequest& request, bool in_flight, uint64_t embedding_bytes,
                     TimePoint now) const;
  // The tokens to generate, or why the request can never be served.
  absl::StatusOr<uint32_t> MaxTokens(const SessionRequest& request) const;
  // Whether a sequence of so many tokens takes rotary variant 1.
  bool IsLong(uint64_t tokens) const {
    return config_.long_rotary_above != 0 && tokens > config_.long_rotary_above;
  }
  PromptLimit LongestPrompt() const;

  // The session can never fit the pool as it is.
  absl::Status NeverFits(const LiveSession& session) const;
  // The session was promised more than the pool would hold with other grants.
  absl::Status KvInUse(const LiveSession& session, const KvLedger& ledger,
                       const std::vector<EngineStage>& stages) const;
  // One more would wait than may.
  absl::Status QueueFull(const SessionRequest& request, size_t queued) const;

 private:
  absl::Status CheckEmbeddings(const SessionRequest& request, uint64_t embedding_bytes) const;
  // `sum` says what `asked` tokens are made of.
  absl::Status ContextExceeded(const std::string& request_id, const std::string& sum,
                               uint64_t asked) const;
  absl::Status NeverFits(const std::string& request_id, const std::string& sum,
                         uint64_t asked) const;

  const EngineConfig& config_;
  const KvLedger& ledger_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_REQUEST_LIMITS_H_
