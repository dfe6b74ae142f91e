// What is sent, and what its results commit.
#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/ledger_policy.h"

namespace strata {
namespace {

// Logits of one step that travel back; far below what a frame may carry.
constexpr size_t kMaxLogitsBytes = size_t{64} << 20;
// Releases of one step; the rest goes with the next.
constexpr size_t kMaxReleases = 4096;
// Of a worker's error message.
constexpr size_t kMaxErrorBytes = 1024;

uint32_t MaxLogitsRows(uint32_t vocab) {
  return static_cast<uint32_t>(std::max<size_t>(1, kMaxLogitsBytes / (sizeof(float) * vocab)));
}

// Positions at the end of a session with digests that are computed one by one, as those of an
// answer are.
constexpr uint32_t kSingleRows = 4;

// Rows of a session with `known` tokens, `sent` of which were sent, that a step may have when
// layers are digested: parts of several sizes must give the same bits.
uint32_t MostDigestedRows(uint32_t known, uint32_t sent) {
  const uint32_t pending = known - sent;
  return pending <= kSingleRows ? 1
                                : std::min(pending - kSingleRows, (known - kSingleRows + 1) / 2);
}

// Cuts text without splitting a UTF-8 character.
void Shorten(std::string* text) {
  if (text->size() > kMaxErrorBytes) {
    size_t end = kMaxErrorBytes;
    while (end > 0 && (static_cast<uint8_t>((*text)[end]) & 0xC0) == 0x80) {
      --end;
    }
    text->resize(end);
  }
}

}  // namespace

SchedulerSnapshot Engine::Impl::SchedulerView() const {
  SchedulerSnapshot view;
  view.stages = static_cast<uint32_t>(config_.stages.size());
  view.steps_in_flight = static_cast<uint32_t>(in_flight_.size());
  view.token_budget = timing_.TokenBudget();
  view.costs = timing_.Costs();
  view.costs_alone = timing_.CostsAlone();
  view.together = together_;
  view.hop_ms = timing_.HopMs();
  view.most_step_ms = timing_.target_ms();
  view.inter_token_ms = ToMs(config_.inter_token_target);
  view.last_decode_step = last_decode_step_;
  view.last_prefill_step = last_prefill_step_;
  view.max_items = config_.max_batch_items;
  view.max_logits_rows = MaxLogitsRows(config_.vocab);
  view.layers = waves_.layers();
  view.max_wave_rows = config_.max_batch_tokens / static_cast<uint32_t>(config_.stages.size());
  view.wave_rows = waves_.rows();
  view.wave_items = waves_.items();
  view.wave_slices = waves_.slices();
  view.wave_may_begin = waves_.may_begin();
  for (const auto& [rank, running] : running_) {
    const Session& session = *running;
    if (!session.claim.has_value() || ledger_.Covers(*session.claim) < session.known()) {
      continue;  // It waits for pages.
    }
    if (CachesPrefixOf(session) && session.generation == 0 && session.holder == 0) {
      continue;  // It waits for what another one computes.
    }
    if (session.waits_for_reader()) {
      continue;  // Not among those that decode: others' micro-batches are not to wait for it.
    }
    const bool in_wave = session.generation != 0 && waves_.Has(session.generation);
    if (in_wave && session.decoding()) {
      continue;  // It computes again what it had: its last token waits for what is in the wave.
    }
    // What computes the last of its tokens again is under way with a prompt's step.
    const bool decodes =
        session.decoding() && !(session.replaying && session.sent == session.known());
    view.decoding += decodes ? 1 : 0;
    view.decoding_attended += decodes ? session.known() : 0;
    if (session.sent < session.known()) {
      view.ready.push_back({.id = session.id,
                            .pending = session.request.digest_layers
                                           ? MostDigestedRows(session.known(), session.sent)
                                           : session.known() - session.sent,
                            .position = session.sent,
                            .decoding = session.decoding(),
                            .wants_logits = session.request.return_logits,
                            .last_step = session.last_step,
                            .priority = session.request.priority,
                            .tenant = session.prefill_tenant,
                            .spreads = !session.request.digest_layers});
    }
  }
  return view;
}

v1::StepFrame* Engine::Impl::BeginFrame(StepMessage* message, SentStep* sent) {
  v1::StepFrame* frame = &message->header;
  frame->set_deployment(config_.deployment);
  frame->set_epoch(fence_.epoch());
  frame->set_step(next_step_);
  frame->set_committed_step(committed_step_);
  sent->step = next_step_++;
  sent->committed_step = committed_step_;
  return frame;
}

bool Engine::Impl::SendNextStep(TimePoint now) {
  waves_.Drop([this](const WaveItem& item) {
    const Session* session = Find(item.session);
    return session == nullptr || session->generation != item.generation;
  });
  SchedulerSnapshot view = SchedulerView();
  suspects_.TryApart(in_flight_, &view);
  ShareRows(&view);
  const ScheduledStep plan = ScheduleStep(view);
  std::vector<uint64_t> releases;
  bool cuts = false;
  for (const auto& [generation, sequence] : sequences_) {
    if (sequence.release_wanted && releases.size() < kMaxReleases) {
      releases.push_back(generation);
    }
    cuts |= sequence.cut_wanted;
  }
  // Releases alone may wait for the next step: stages run steps in order, so one that is sent now
  // would not free a page sooner than the last one in flight is through.
  if (plan.empty() && ((releases.empty() && !cuts) || !in_flight_.empty())) {
    return false;
  }
  StepMessage message;
  SentStep sent;
  v1::StepFrame* frame = BeginFrame(&message, &sent);
  // Forks first: what they copy may be released or cut by the same step.
  AddForks(frame, &sent);
  AddCuts(frame, &sent);
  for (uint64_t generation : releases) {
    Sequence& sequence = sequences_.at(generation);
    sequence.release_wanted = false;
    v1::SequenceName* name = frame->add_commands()->mutable_release()->mutable_sequence();
    name->set_request_id(sequence.request_id);
    name->set_generation(generation);
    sent.commands.push_back({.kind = CommandKind::kRelease, .generation = generation});
    if (ledger_policy::FreesWhenPlanned()) {
      GiveBack(generation, &sequence);
    }
  }
  if (const uint32_t decoding = AddItems(plan, frame, &sent); decoding > 0) {
    together_ = decoding == view.decoding;
  }
  Dispatch(std::move(message), std::move(sent), now);
  return true;
}

void Engine::Impl::Dispatch(StepMessage message, SentStep sent, TimePoint now) {
  STRATA_CHECK(in_flight_.size() <= config_.stages.size());
  if (in_flight_.empty()) {
    last_activity_ = now;
    sent.first = sent.alone = true;
    meter_.Begin(now);
  } else {
    in_flight_.front().alone = false;
  }
  sent.sent = now;
  in_flight_.push_back(std::move(sent));
  ++counters_.steps_sent;
  host_->SendStep(std::move(message));
}

// By value: a result is the engine's once it arrived, whatever becomes of it.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Engine::Impl::OnResult(ResultMessage result, TimePoint now) {
  const v1::StepResult& header = result.header;
  const uint64_t epoch = fence_.epoch();
  if (!fence_.expects_results() || header.deployment() != config_.deployment ||
      header.epoch() < epoch || (header.epoch() == epoch && header.step() <= committed_step_)) {
    ++counters_.results_discarded;
    return;
  }
  if (header.epoch() != epoch || in_flight_.empty() || header.step() != in_flight_.front().step) {
    Fault(Error(absl::StatusCode::kDataLoss, "BAD_RESULT",
                "a result of epoch " + std::to_string(header.epoch()) + ", step " +
                    std::to_string(header.step()) + " came where step " +
                    std::to_string(committed_step_ + 1) + " of epoch " + std::to_string(epoch) +
                    " was expected"),
          now);
    return;
  }
  const ResultShape shape{static_cast<uint32_t>(config_.stages.size()),
                          static_cast<uint32_t>(config_.kv_groups.size()), config_.layers,
                          config_.vocab};
  if (absl::Status status = CheckResult(in_flight_.front(), shape, result); !status.ok()) {
    Fault(status, now);
    return;
  }
  const SentStep sent = std::move(in_flight_.front());
  in_flight_.pop_front();
  committed_step_ = sent.step;
  last_activity_ = now;
  Commit(sent, result, now);
  Pump(now);
}

void Engine::Impl::Commit(const SentStep& sent, const ResultMessage& result, TimePoint now) {
  const v1::StepResult& header = result.header;
  ++counters_.steps_committed;
  counters_.rows_committed += sent.rows_begun;
  step_times_ = meter_.Commit(sent.rows_begun, !sent.items.empty(), header.stages(),
                              result.received_bytes, now - sent.sent, now);
  absl::Status status;
  RetainWindows(sent.committed_step);
  if (sent.resync) {
    CommitResync(sent, header);
  } else {
    status = CommitCommands(sent, header);
  }
  std::span<const float> logits = result.payload;
  for (size_t i = 0; i < sent.items.size(); ++i) {
    const v1::ItemResult& item = header.items(static_cast<int>(i));
    const size_t values = size_t{item.payload_rows()} * config_.vocab;
    CommitItem(sent.items[i], sent.step, item, logits.subspan(0, values), now);
    logits = logits.subspan(values);
  }
  double compute_ms = 0;
  for (const v1::StageKv& stage : header.stages()) {
    timing_.Observe(stage.stage(), sent.work, sent.slices, stage.compute_ms(), sent.alone);
    compute_ms += stage.compute_ms();
  }
  if (sent.first) {
    timing_.ObserveRoundTrip(ToMs(now - sent.sent), compute_ms);
  }
  if (absl::Status kv = ledger_.Compare(header.stages()); !kv.ok()) {
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
}

absl::Status Engine::Impl::CommitCommands(const SentStep& sent, const v1::StepResult& header) {
  absl::Status status;
  for (size_t i = 0; i < sent.commands.size(); ++i) {
    const v1::CommandResult& result = header.commands(static_cast<int>(i));
    const SentCommand& command = sent.commands[i];
    if (command.kind == CommandKind::kFork) {
      CommitFork(command, result);
      continue;
    }
    if (command.kind == CommandKind::kTruncate) {
      CommitCut(command, result, sent.step);
      continue;
    }
    // Not found: its first item was rejected, or the stage lost it, which the counts of pages show.
    if (result.has_error() &&
        result.error().code() != static_cast<uint32_t>(absl::StatusCode::kNotFound)) {
      status = ItemStatus(sequences_.at(command.generation).request_id, result.error_stage(),
                          result.error());
      continue;  // The fence that follows releases it.
    }
    Released(command.generation);
  }
  return status;
}

void Engine::Impl::RetainWindows(uint64_t committed_step) {
  while (!lengths_.empty() && lengths_.front().step <= committed_step) {
    ledger_.SetRetained(lengths_.front().generation, lengths_.front().length);
    lengths_.pop_front();
  }
}

void Engine::Impl::CommitItem(const SentItem& sent, uint64_t step, const v1::ItemResult& item,
                              std::span<const float> logits, TimePoint now) {
  // It exists: its Release comes in a later step than its items.
  Sequence& sequence = sequences_.at(sent.generation);
  if (item.has_error()) {
    ++counters_.item_errors;
    if (!sequence.poisoned) {
      sequence.poisoned = true;
      ledger_.SetHeld(sent.generation, sequence.committed, sequence.sent);
      OnItemError(sent, item);
    }
    return;
  }
  if (sequence.poisoned) {
    return;  // Computed on what a rejected item left: not committed.
  }
  const uint32_t end = sent.position + sent.rows;
  if (sent.first_slice) {
    ledger_.SetHeld(sent.generation, end, end);
  }
  Session* session = Find(sequence.session);
  if (session != nullptr) {
    ++session->steps;
    session->times += step_times_;
  }
  if (!sent.last_slice) {
    return;
  }
  sequence.committed = end;
  if (has_windows_) {
    lengths_.push_back({step, sent.generation, sequence.committed});
  }
  if (session != nullptr) {
    CommitTokens(*session, sent, item, logits, now);
  }
}

void Engine::Impl::CommitTokens(Session& session, const SentItem& sent, const v1::ItemResult& item,
                                std::span<const float> logits, TimePoint now) {
  STRATA_CHECK(session.committed == sent.position && session.generation == sent.generation);
  for (uint32_t i = 0; i < sent.rows; ++i) {
    session.committed_fingerprint =
        FingerprintLink(session.committed_fingerprint, session.LinkAt(session.committed));
    ++session.committed;
  }
  suspects_.NoteCommitted(session.id, session.committed);
  Publish(session, session.committed);
  DeliverRows(session, sent, item, logits);
  if (sent.sample) {
    DeliverToken(session, item.tokens(0), now);
  }
}

void Engine::Impl::DeliverRows(Session& session, const SentItem& sent, const v1::ItemResult& item,
                               std::span<const float> logits) {
  const bool digests = sent.digest_layers && sent.first_wanted < sent.rows;
  if (sent.rows_wanted == v1::ROWS_WANTED_NONE && !digests) {
    return;
  }
  session.next_row = sent.position + sent.rows;
  std::vector<const v1::TokenLogprob*> logprobs;
  for (const v1::TokenLogprob& logprob : item.row_logprobs()) {
    logprobs.push_back(&logprob);
  }
  std::vector<std::span<const uint64_t>> layers;
  for (const v1::LayerDigest& digest : item.layer_digests()) {
    layers.push_back(std::span(digest.rows().data(), sent.rows).subspan(sent.first_wanted));
  }
  session.sink->OnRows({.first_position = sent.position + sent.first_wanted,
                        .prompt_logprobs = logprobs,
                        .logits = logits,
                        .layer_digests = std::move(layers)});
}

void Engine::Impl::DeliverToken(Session& session, const v1::TokenLogprob& token, TimePoint now) {
  const SessionRequest& request = session.request;
  const uint32_t index = session.generated();
  session.tokens.push_back(token.token_id());
  Charge(session);
  session.replaying = false;
  ++counters_.tokens_generated;
  if (!session.first_token.has_value()) {
    session.first_token = now;
  }
  const bool is_stop_id =
      !request.ignore_eos && std::find(request.stop_ids.begin(), request.stop_ids.end(),
                                       token.token_id()) != request.stop_ids.end();
  const Verdict verdict =
      session.sink->OnToken({.token = token, .index = index, .is_stop_id = is_stop_id});
  if (is_stop_id || verdict == Verdict::kStop) {
    FinishSession(session, "stop", now);
  } else if (session.generated() >= session.max_tokens) {
    FinishSession(session, "length", now);
  }
}

void Engine::Impl::OnItemError(const SentItem& sent, const v1::ItemResult& item) {
  Session* session = Find(sequences_.at(sent.generation).session);
  if (session == nullptr) {
    return;  // It ended before; its Release is on its way.
  }
  const absl::Status status = ItemStatus(sent.request_id, item.error_stage(), item.error());
  // The stage has other state than the one named (or no room for what the ledger promised): the
  // tokens are known, so the session can start over.
  const bool replayable = absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
                          absl::IsResourceExhausted(status);
  if (replayable && session->replays < kMaxReplays) {
    ++session->replays;
    ++counters_.replays;
    Replay(*session);
  } else {
    FailSession(*session, status);
  }
}

absl::Status Engine::Impl::ItemStatus(const std::string& request_id, uint32_t stage,
                                      const v1::ErrorDetail& error) const {
  v1::ErrorDetail detail = error;
  const std::string& node = config_.stages[std::min<size_t>(stage, config_.stages.size() - 1)].node;
  detail.set_message("request \"" + request_id + "\", stage " + std::to_string(stage) +
                     " on node \"" + node + "\": " + error.message());
  Shorten(detail.mutable_message());
  // The stage's own hint is for the coordinator, which has followed it where it could.
  detail.set_hint("send the request again; if that fails too, see the log of strata-worker on \"" +
                  node + "\" and start it anew");
  detail.set_node(node);
  detail.set_request_id(request_id);
  (*detail.mutable_facts())["stage"] = std::to_string(stage);
  return StatusOf(detail);
}

}  // namespace strata
