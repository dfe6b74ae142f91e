// What results mean for sessions: their tokens are committed and delivered, and what was rejected
// is computed again or ends them.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_RESULTS_H_
#define STRATA_COORDINATOR_ENGINE_STEP_RESULTS_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/engine/mask_slots.h"
#include "coordinator/engine/result_check.h"
#include "coordinator/engine/sequence_book.h"
#include "coordinator/engine/session_ends.h"
#include "coordinator/engine/session_queue.h"
#include "coordinator/engine/step_meter.h"
#include "coordinator/engine/suspect_search.h"

namespace strata {

// One thread. What is passed went through CheckResult.
class StepResults {
 public:
  // All outlive this. It counts replays and generated tokens.
  StepResults(const EngineConfig& config, SessionQueue* sessions, SequenceBook* book,
              SuspectSearch* suspects, SessionEnds* ends, MaskSlots* masks,
              EngineCounters* counters);

  // Of a step that is no resynchronisation. An error: a stage could not do what it always can.
  absl::Status CommitCommands(const SentStep& sent, const v1::StepResult& header);
  // `times`: where the step's time went.
  void CommitItems(const SentStep& sent, const ResultMessage& result, const StepTimes& times,
                   TimePoint now);
  // Ends a session whose constraint has a problem, or says that the answer is complete; else one
  // that has all its tokens, once it is known that the answer is not complete.
  void EndWhereItMust(LiveSession& session, TimePoint now);
  // The session's constraint has sets: what was drafted behind them may be in its next step.
  void TakeSets(LiveSession& session);
  // Unless a stage is of a version that computes no drafts, or none behind which masks are.
  bool MayDraft(const SessionRequest& request) const {
    return !stages_refuse_drafts_ && (request.constraint == nullptr || !stages_refuse_draft_masks_);
  }
  // The stages are loaded anew, and may be of another version.
  void ForgetRefusals() { stages_refuse_drafts_ = stages_refuse_draft_masks_ = false; }

 private:
  void CommitItem(const SentItem& sent, uint64_t step, const v1::ItemResult& item,
                  std::span<const float> logits, const StepTimes& times, TimePoint now);
  void OnItemError(LiveSession& session, const SentItem& sent, const v1::ItemResult& item);
  static void DeliverRows(LiveSession& session, const SentItem& sent, const v1::ItemResult& item,
                          std::span<const float> logits);
  // As many as the item sampled, one after the other, unless the session ends before.
  void DeliverTokens(LiveSession& session, const SentItem& sent, const v1::ItemResult& item,
                     TimePoint now);
  void DeliverToken(LiveSession& session, const v1::TokenLogprob& token, TimePoint now);
  // Tokens were computed that are from there.
  void CountDrafted(std::span<const DraftSource> sources);
  // The session has other tokens than before.
  void RefreshDrafts(LiveSession& session);
  absl::Status ItemStatus(const std::string& request_id, uint32_t stage,
                          const v1::ErrorDetail& error) const;

  const EngineConfig& config_;
  SessionQueue* const sessions_;
  SequenceBook* const book_;
  SuspectSearch* const suspects_;
  SessionEnds* const ends_;
  MaskSlots* const masks_;
  EngineCounters* const counters_;
  bool stages_refuse_drafts_ = false;
  bool stages_refuse_draft_masks_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_RESULTS_H_
