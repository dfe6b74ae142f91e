// What is sent, and what comes back.
#include <utility>

#include "common/status.h"
#include "coordinator/engine/engine_impl.h"

namespace strata {

bool Engine::Impl::SendNextStep(TimePoint now) {
  builder_.DropGoneWaves();
  SchedulerSnapshot view = builder_.View(in_flight_.size(), now);
  masks_awaited_until_ = view.masks_awaited_until;
  suspects_.TryApart(in_flight_.steps(), &view);
  sessions_.ShareRows(&view);
  ScheduledStep plan = ScheduleStep(view);
  builder_.CoverAhead(&plan);
  // Commands alone may wait for the next step: stages run steps in order, so one that is sent now
  // would not free a page sooner than the last one in flight is through.
  if (plan.empty() && (!in_flight_.empty() || !book_.WantsCommands())) {
    return false;
  }
  OutgoingStep step = sender_.Begin();
  v1::StepFrame* const frame = &step.message.header;
  // Forks first: what they copy may be released or cut by the same step.
  for (const auto& [rank, session] : sessions_.running()) {
    if (session->kv.to_be_forked()) {
      book_.AddFork(*session, frame, &step.sent);
    }
  }
  book_.AddCommands(frame, &step.sent);
  builder_.AddItems(plan, view.decoding, frame, &step.sent);
  sender_.Send(std::move(step), now);
  return true;
}

// By value: a result is the engine's once it arrived, whatever becomes of it.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Engine::Impl::OnResult(ResultMessage result, TimePoint now) {
  const v1::StepResult& header = result.header;
  const uint64_t epoch = fence_.epoch();
  if (!fence_.expects_results() || header.deployment() != config_.deployment ||
      header.epoch() < epoch ||
      (header.epoch() == epoch && header.step() <= in_flight_.committed())) {
    ++counters_.results_discarded;
    return;
  }
  if (header.epoch() != epoch || in_flight_.empty() || header.step() != in_flight_.oldest().step) {
    Fault(Error(absl::StatusCode::kDataLoss, "BAD_RESULT",
                "a result of epoch " + std::to_string(header.epoch()) + ", step " +
                    std::to_string(header.step()) + " came where step " +
                    std::to_string(in_flight_.committed() + 1) + " of epoch " +
                    std::to_string(epoch) + " was expected"),
          now);
    return;
  }
  const ResultShape shape{static_cast<uint32_t>(config_.stages.size()),
                          static_cast<uint32_t>(config_.kv_groups.size()), config_.layers,
                          config_.vocab};
  if (absl::Status status = CheckResult(in_flight_.oldest(), shape, result); !status.ok()) {
    Fault(status, now);
    return;
  }
  Commit(in_flight_.Commit(now), result, now);
  Pump(now);
}

void Engine::Impl::Commit(const SentStep& sent, const ResultMessage& result, TimePoint now) {
  const v1::StepResult& header = result.header;
  ++counters_.steps_committed;
  counters_.rows_committed += sent.rows_begun;
  const StepTimes times = meter_.Commit(sent.rows_begun, !sent.items.empty(), header.stages(),
                                        result.received_bytes, now - sent.sent, now);
  absl::Status status;
  book_.RetainWindows(sent.committed_step);
  if (sent.resync) {
    book_.CommitResync(sent, header);
  } else {
    status = results_.CommitCommands(sent, header);
  }
  results_.CommitItems(sent, result, times, now);
  double compute_ms = 0;
  for (const v1::StageKv& stage : header.stages()) {
    timing_.Observe(stage.stage(), sent.work, sent.slices, stage.compute_ms(), sent.alone);
    compute_ms += stage.compute_ms();
  }
  if (sent.first) {
    timing_.ObserveRoundTrip(ToMs(now - sent.sent), compute_ms);
  }
  if (absl::Status kv = book_.held().Compare(header.stages()); !kv.ok()) {
    ++counters_.ledger_mismatches;
    quarantine_ = EngineProblem{Describe(kv),
                                "every sequence was resynchronised; if it comes again, unload and "
                                "load the model, and report it"};
    status = kv;
  }
  if (!status.ok()) {
    Fault(status, now);
    return;
  }
  fence_.OnCommitted();
  fence_patience_ = nanoseconds(0);
  if (sent.rows_begun > 0) {
    stalls_.NoteCommitted();
  }
}

}  // namespace strata
