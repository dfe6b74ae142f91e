// What a step is made of: the scheduler's view of the sessions, and the items of what it plans, as
// a whole or as slices of waves (layer_waves.h).
#ifndef STRATA_COORDINATOR_ENGINE_STEP_BUILDER_H_
#define STRATA_COORDINATOR_ENGINE_STEP_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/layer_waves.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/engine/mask_slots.h"
#include "coordinator/engine/result_check.h"
#include "coordinator/engine/scheduler.h"
#include "coordinator/engine/sequence_book.h"
#include "coordinator/engine/session_queue.h"
#include "coordinator/engine/step_timing.h"

namespace strata {

// One thread.
class StepBuilder {
 public:
  // All outlive this. Of `counters` it counts slices and steps ahead, and reads the steps that were
  // sent.
  StepBuilder(const EngineConfig& config, const StepTiming& timing, SessionQueue* sessions,
              SequenceBook* book, MaskSlots* masks, EngineCounters* counters);

  SchedulerSnapshot View(size_t steps_in_flight, TimePoint now) const;
  // Of a step ahead of a result: memory for its tokens, or as many fewer as there is none for.
  void CoverAhead(ScheduledStep* plan);
  // What the plan says: the sessions' tokens are sent from now on. `decoding`: sessions that
  // decode, of the plan's view.
  void AddItems(const ScheduledStep& plan, uint32_t decoding, v1::StepFrame* frame, SentStep* sent);

  // Waves of sequences that do not work for their sessions any more do not go on.
  void DropGoneWaves();
  // The steps in flight are lost.
  void DropWaves() { waves_.Clear(); }
  // The stages have other layers.
  void RenewWaves();

 private:
  // Of a model's layers [from, end); end 0: to the last one, and what is wanted of the rows.
  struct LayerRange {
    uint32_t from = 0;
    uint32_t end = 0;
  };

  // Tokens of an item: known ones, and guesses behind them.
  struct ItemTokens {
    WaveItem where;
    std::span<const uint32_t> known;  // Of an item ahead of a result, a guess as well.
    std::span<const uint32_t> drafts;
    bool ahead = false;
  };

  ItemTokens Send(LiveSession& session, const ScheduledItem& item, uint32_t drafts);
  // Of guesses behind what is known, those behind what was sent of them.
  static std::span<const uint32_t> GuessesAhead(const LiveSession& session);
  bool MayGoAhead(const LiveSession& session) const;
  void AddSlice(const WaveSlice& slice, v1::StepFrame* frame, SentStep* sent);
  void AddItem(const LiveSession& session, const ItemTokens& tokens, const LayerRange& layers,
               v1::StepFrame* frame, SentStep* sent);
  // Pages that stay free where drafts take some, if they may: nobody waits for any.
  std::optional<uint64_t> SpareOfDrafts() const;
  // Masks behind drafts that the step has room for, beside those of its items.
  uint32_t PlacesOfDrafts(const ScheduledStep& plan) const;
  // Tokens of the session that a step may have now.
  static uint32_t PendingOf(const LiveSession& session, bool may_have_mask);
  // Whether a step may have any of its tokens.
  bool MayHaveItems(const LiveSession& session) const;
  // Sessions whose masks the next step has no room for: of those that would have one, the ones that
  // were in a step last.
  std::set<uint64_t> WithoutMaskPlace() const;

  const EngineConfig& config_;
  const StepTiming& timing_;
  SessionQueue* const sessions_;
  SequenceBook* const book_;
  MaskSlots* const masks_;
  EngineCounters* const counters_;
  LayerWaves waves_;
  uint64_t last_decode_step_ = 0;  // The newest with decode items, and with parts of prompts.
  uint64_t last_prefill_step_ = 0;
  bool together_ = false;  // The newest with decode items had all there were.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_BUILDER_H_
