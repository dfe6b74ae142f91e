// When a draft model is asked for which sessions of an engine, and what its answers are worth.
#ifndef STRATA_COORDINATOR_ENGINE_DRAFT_MODEL_ASKS_H_
#define STRATA_COORDINATOR_ENGINE_DRAFT_MODEL_ASKS_H_

#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "coordinator/engine/draft_model.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/engine/scheduler.h"
#include "coordinator/engine/session_queue.h"

namespace strata {

// One thread.
class DraftModelAsks {
 public:
  // `sessions` and `host` outlive this.
  DraftModelAsks(SessionQueue* sessions, EngineHost* host) : sessions_(sessions), host_(host) {}

  // Asks for running sessions: of one whose prompt is computed, so that the model has read it by
  // the first token; of one that decodes, for what its next step is to check, where that pays and
  // its own text says nothing. `view` tells what steps take.
  void Ask(const SchedulerSnapshot& view, TimePoint now);
  // The answer to what was asked of the session when it had `known` tokens; none: it has failed.
  void Take(LiveSession& session, uint32_t known, std::vector<uint32_t> guesses, TimePoint now);

 private:
  bool AskFor(LiveSession& session, uint32_t most, TimePoint now);

  SessionQueue* const sessions_;
  EngineHost* const host_;
  GuessPace pace_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_DRAFT_MODEL_ASKS_H_
