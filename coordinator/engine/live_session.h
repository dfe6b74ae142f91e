// A session of the engine's, from Submit until it ends: a request's side, of which the token list
// is the truth.
#ifndef STRATA_COORDINATOR_ENGINE_LIVE_SESSION_H_
#define STRATA_COORDINATOR_ENGINE_LIVE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "coordinator/engine/draft_model.h"
#include "coordinator/engine/session.h"
#include "coordinator/engine/session_drafts.h"
#include "coordinator/engine/session_kv.h"
#include "coordinator/engine/step_meter.h"

namespace strata {

struct LiveSession {
  // Smaller is more important: by priority, then by age. It never changes, so sessions that take
  // memory from less important ones cannot do so in a circle.
  using Rank = std::pair<int64_t, uint64_t>;

  uint64_t id = 0;         // In order of arrival.
  SessionRequest request;  // Without its prompt, which begins `tokens`.
  std::shared_ptr<SessionSink> sink;
  std::vector<uint32_t> tokens;  // The prompt, then what was generated and committed.
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  // Its tenant's index among the shares of admission and of prefill, and the tokens that it was
  // charged for at admission and since. The queue's.
  uint32_t tenant = 0;
  uint32_t prefill_tenant = 0;
  uint32_t charged = 0;
  TimePoint arrived{0};
  std::optional<TimePoint> started;  // Admitted.
  std::optional<TimePoint> first_token;
  SessionKv kv;  // The book writes it.
  SessionDrafts drafts;
  SessionGuesses guesses;  // Of a draft model, on their way to `drafts`.
  uint32_t next_row = 0;   // First position whose rows the sink has not seen.
  uint64_t last_step = 0;  // Of its newest item, by the steps that were ever sent.
  uint32_t steps = 0;      // Committed, with rows of it; and where their time went.
  StepTimes times;
  uint32_t preemptions = 0;
  int replays = 0;
  TimePoint mask_since{0};  // Its constraint knows the tokens since then.
  bool paused = false;      // By SetPaused.
  TimePoint paused_since{0};

  uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t generated() const { return known() - prompt_tokens; }
  // What follows position `i` in fingerprints.
  uint64_t LinkAt(uint32_t i) const {
    const auto row = EmbeddingsWithin(request.embeddings, i, 1);
    return row.empty() ? tokens[i] : row.front().link;
  }
  bool decoding() const { return generated() > 0 && kv.sent() + 1 >= known(); }
  // Its next token is not to be computed yet. What it computes again others may wait for.
  bool waits_for_reader() const { return paused && decoding() && !kv.replaying(); }
  // Its next token cannot be sampled yet. What is before it may be computed.
  bool awaits_mask() const {
    return request.constraint != nullptr && request.constraint->Next() == nullptr;
  }
  // Tokens that its next step may have beside the one that is known.
  uint32_t most_drafts() const {
    const uint32_t left = max_tokens - generated();
    return left > 0 ? left - 1 : 0;
  }
  // The longest that its sequence can become.
  uint32_t most_tokens() const { return prompt_tokens + max_tokens; }
  // What its claim is to cover while it runs: all that is known, or all that it can become.
  uint32_t wanted_claim() const { return request.guaranteed ? most_tokens() : known(); }
  // What it must have room for to start: all that is known, and one token of growth.
  uint32_t first_claim() const { return request.guaranteed ? most_tokens() : known() + 1; }
  Rank rank() const { return {-int64_t{request.priority}, id}; }
};

// Whether its claim covers all that is known of it.
inline bool HasRoom(const KvLedger& ledger, const LiveSession& session) {
  return session.kv.claim().has_value() && ledger.Covers(*session.kv.claim()) >= session.known();
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_LIVE_SESSION_H_
