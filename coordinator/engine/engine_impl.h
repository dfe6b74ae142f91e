// The engine's inside; only its own sources include it. It conducts the owners of its state, each
// with a header of its own:
//   SessionQueue   the sessions, queued, running or parked, and whose turn it is
//   SequenceBook   sequences, claims and prefixes: what is sent and committed
//   Fence          whether steps may be sent: epoch, faults, outages
//   StepsInFlight  the epoch's steps, and the pipeline's last sign of life
//   StallWatch     how long the pipeline may give no sign of life
//   StepSender     what goes to the stages
//   SuspectSearch  the search for a session that breaks a stage
//   Admission      who gets KV memory, and who gives it up
//   StepBuilder    what a step is made of
//   StepResults    what results mean for sessions
//   DraftModelAsks when a draft model is asked, and for whom
//   SessionEnds    how sessions end
//   RecentAnswers  what ended sessions said, for drafts
//   RequestLimits  which requests can be served at all
// engine.cc has what callers ask for, engine_steps.cc what is sent and comes back, engine_faults.cc
// faults, resynchronisation, time, and stages that are loaded anew.
#ifndef STRATA_COORDINATOR_ENGINE_ENGINE_IMPL_H_
#define STRATA_COORDINATOR_ENGINE_ENGINE_IMPL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/engine/admission.h"
#include "coordinator/engine/draft_model_asks.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/fence.h"
#include "coordinator/engine/mask_slots.h"
#include "coordinator/engine/recent_answers.h"
#include "coordinator/engine/request_limits.h"
#include "coordinator/engine/result_check.h"
#include "coordinator/engine/sequence_book.h"
#include "coordinator/engine/session_ends.h"
#include "coordinator/engine/session_queue.h"
#include "coordinator/engine/stall_watch.h"
#include "coordinator/engine/step_builder.h"
#include "coordinator/engine/step_meter.h"
#include "coordinator/engine/step_results.h"
#include "coordinator/engine/step_sender.h"
#include "coordinator/engine/step_timing.h"
#include "coordinator/engine/steps_in_flight.h"
#include "coordinator/engine/suspect_search.h"

namespace strata {

// Their names, and what the plan predicts of them, by stage.
std::vector<std::string> NodesOf(const std::vector<EngineStage>& stages);
std::vector<double> PredictedMsOf(const std::vector<EngineStage>& stages);

class Engine::Impl {
 public:
  Impl(EngineConfig config, SequenceNumbers* sequence_numbers, EngineHost* host);

  void Start(TimePoint now);
  absl::Status Submit(SessionRequest request, std::shared_ptr<SessionSink> sink, TimePoint now);
  bool Cancel(std::string_view key, const absl::Status& why, TimePoint now);
  bool SetPaused(std::string_view key, bool paused, TimePoint now);
  void OnConstraint(std::string_view key, TimePoint now);
  void OnGuesses(std::string_view key, uint32_t known, std::vector<uint32_t> guesses,
                 TimePoint now);
  void OnResult(ResultMessage result, TimePoint now);
  void OnLinkFault(uint64_t epoch, const absl::Status& status, TimePoint now);
  void OnFenced(uint64_t epoch, TimePoint now);
  void StopAdmitting(const absl::Status& why);
  void FailAll(const absl::Status& why, TimePoint now);
  void Stop(const absl::Status& why, TimePoint now);
  absl::Status CheckFits(const std::vector<EngineStage>& stages) const;
  void Suspend(std::vector<EngineStage> stages, TimePoint now, const std::string& numerics_class);
  void Drain(bool drains, TimePoint now);
  bool drained() const { return in_flight_.empty(); }
  void Repoint(std::vector<EngineStage> stages, TimePoint now);
  void LoseStages(const absl::Status& why, nanoseconds patience, TimePoint now);
  void Resume(uint64_t epoch, TimePoint now);
  std::optional<TimePoint> NextWake() const;
  void ExcusePause(TimePoint now) { in_flight_.NoteSign(now); }
  void Tick(TimePoint now);
  EngineSnapshot Snapshot(TimePoint now) const;

  const Fence& fence() const { return fence_; }
  const SessionQueue& sessions() const { return sessions_; }
  const RequestLimits& limits() const { return limits_; }

 private:
  // What every change is followed by: sessions get memory, and steps are sent.
  void Pump(TimePoint now);

  bool SendNextStep(TimePoint now);
  void Commit(const SentStep& sent, const ResultMessage& result, TimePoint now);

  void Fault(const absl::Status& status, TimePoint now);
  // The steps in flight gave no result for as long as `patience`.
  void Stall(nanoseconds patience, TimePoint now);
  // The fence was not acknowledged in time: if that is not the first stall in a row, other nodes
  // may be better than the one that did not.
  void StallOfFence(TimePoint now);
  // How long to wait for the next result, and for a fence: behind steps in flight, or now.
  nanoseconds StepPatience() const;
  nanoseconds BehindStepsInFlight() const;
  nanoseconds FencePatience() const;
  // The steps in flight are lost: those they carried are the suspects now.
  void NoteSuspects();
  // The epoch's first frame: cuts every live sequence to what was committed, and every kept one to
  // what is cached of it; what it does not name is released. Nothing else goes before its result
  // says what the stages really had.
  void SendResync(TimePoint now);
  // The steps in flight are given up, and none is sent until Resume.
  void BeginSuspension(std::vector<EngineStage> stages);
  // Whether the host has other stages in mind for sessions that would fail.
  bool PlacesElsewhere() const;
  void GoDown(const absl::Status& why);
  absl::Status DownStatus() const;

  EngineHost* const host_;
  EngineConfig config_;  // Only suspensions change it: the stages, and their numerics class.
  EngineCounters counters_;
  StepTiming timing_;
  StepMeter meter_;

  Fence fence_;
  StepsInFlight in_flight_;
  StallWatch stalls_;
  StepSender sender_;
  RecentAnswers recent_;
  SessionQueue sessions_;
  SequenceBook book_;
  SuspectSearch suspects_;
  SessionEnds ends_;
  RequestLimits limits_;
  Admission admission_;
  MaskSlots masks_;
  StepBuilder builder_;
  StepResults results_;
  DraftModelAsks guesses_;

  bool drains_ = false;
  // Of a fence: a stage may be at the longest of the steps that were lost since the last commit.
  nanoseconds fence_patience_;
  std::optional<TimePoint> masks_awaited_until_;  // Masks may hold a step back until then.
  absl::Status not_admitting_;                    // Ok: admitting.
  std::optional<EngineProblem> quarantine_;       // The newest ledger mismatch.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_ENGINE_IMPL_H_
