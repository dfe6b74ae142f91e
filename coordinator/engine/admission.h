// Who has KV memory: which queued sessions start, what running ones grow to, and who gives way when
// pages are missing. The ledger counts; this decides.
#ifndef STRATA_COORDINATOR_ENGINE_ADMISSION_H_
#define STRATA_COORDINATOR_ENGINE_ADMISSION_H_

#include <cstdint>
#include <optional>

#include "common/clock.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/fence.h"
#include "coordinator/engine/kv_ledger.h"
#include "coordinator/engine/sequence_book.h"
#include "coordinator/engine/session_ends.h"
#include "coordinator/engine/session_queue.h"

namespace strata {

// One thread.
class Admission {
 public:
  // All outlive this. It counts preemptions.
  Admission(const EngineConfig& config, const Fence& fence, SessionQueue* sessions,
            SequenceBook* book, SessionEnds* ends, EngineCounters* counters);

  // Running sessions grow, queued ones start, and both are given the prefixes that they begin on.
  // While steps may be sent.
  void Run(TimePoint now);
  // Whether a session that asks for so many tokens would start at once.
  bool StartsAtOnce(uint32_t first_claim) const;
  // The ledger is new and nobody has a claim: running sessions get theirs again, or wait for a
  // start.
  void ReserveAnew();
  // When somebody who does not read may be asked to give way.
  std::optional<TimePoint> NextWake() const;

 private:
  bool CanStartMore() const;
  // What a session that starts now leaves free.
  KvSpare Spare() const;
  void Start(TimePoint now);
  // What the session's start asks for, with what running sessions wait for.
  KvPages AskedWith(const LiveSession& first, const KvPrefix& shared) const;
  // Cached pages give way to all that could run then, not to the first alone: each takes a step.
  void EvictForQueue(LiveSession& first);
  // While nobody waits the cache leaves a part of the pool free, so that who comes next need not
  // wait for the step with a Release.
  void EvictAhead();
  // Claims grow to what is known of the running sessions, the most important first; pages that are
  // missing come from the least important ones. Whether nobody waits or had to give way.
  bool GrowClaims();
  void GrowClaim(LiveSession& session);
  // Those who do not read give way to the first in the queue.
  void ParkFor(LiveSession& first);
  // Back to the queue: keeps its tokens, and gives up what it has on the stages. One that waits for
  // its reader comes to the queue only once that reads again; of too many such the oldest fails.
  void Preempt(LiveSession& session);

  const EngineConfig& config_;
  const Fence& fence_;
  SessionQueue* const sessions_;
  SequenceBook* const book_;
  SessionEnds* const ends_;
  EngineCounters* const counters_;
  TimePoint now_{0};      // Of the newest Run.
  bool has_room_ = true;  // GrowClaims' last answer.
  KvPages awaited_;       // What running sessions wait for since then.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_ADMISSION_H_
