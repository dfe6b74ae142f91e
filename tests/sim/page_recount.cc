#include "tests/sim/page_recount.h"

#include <algorithm>

#include "common/limits.h"
#include "coordinator/engine/drafter.h"

namespace strata::sim {

std::string RecountLive(const EngineSnapshot& snapshot) {
  uint64_t most = 0;
  for (const SessionSnapshot& session : snapshot.sessions) {
    if (session.state != "queued" && session.state != "preempted") {
      // What is known of it, and the token to come, or drafts. Of what is computed anew, and behind
      // a fence, those of before may not be back yet.
      const bool anew = session.state == "replaying" || snapshot.state != PipelineState::kRunning;
      const uint32_t drafts =
          anew ? std::max(kMostGuesses, session.drafts_held) : session.drafts_held;
      const uint64_t tokens =
          uint64_t{session.prompt_tokens} + (session.guaranteed
                                                 ? session.max_tokens
                                                 : session.generated_tokens + std::max(1u, drafts));
      most += (tokens + kPageTokens - 1) / kPageTokens;
    }
  }
  for (const KvSnapshot& kv : snapshot.kv) {
    if (kv.live > most) {
      return "stage " + std::to_string(kv.stage) + " has " + std::to_string(kv.live) +
             " live pages by the ledger, and running sessions need " + std::to_string(most);
    }
  }
  return "";
}

std::string RecountStage(const EngineSnapshot& snapshot, uint32_t stage, uint64_t pages_in_use) {
  const KvSnapshot& kv = snapshot.kv[stage];
  if (pages_in_use <= kv.live + kv.cached + kv.fenced) {
    return "";
  }
  return "stage " + std::to_string(stage) + " holds " + std::to_string(pages_in_use) +
         " pages, and the ledger knows of " + std::to_string(kv.live) + " live, " +
         std::to_string(kv.cached) + " cached and " + std::to_string(kv.fenced) + " fenced";
}

}  // namespace strata::sim
