#include "coordinator/engine/step_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "coordinator/engine/draft_policy.h"

namespace strata {
namespace {

// Logits of one step that travel back; far below what a frame may carry.
constexpr size_t kMaxLogitsBytes = size_t{64} << 20;

uint32_t MaxLogitsRows(uint32_t vocab) {
  return static_cast<uint32_t>(std::max<size_t>(1, kMaxLogitsBytes / (sizeof(float) * vocab)));
}

// A step of answers waits so long for masks that are being made: most are there sooner, and without
// them the step would leave their sessions out.
constexpr nanoseconds kMaskPatience = milliseconds(1);

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

// Of each; empty where one is not known.
std::vector<uint32_t> LayersOf(const std::vector<EngineStage>& stages) {
  std::vector<uint32_t> layers;
  for (const EngineStage& stage : stages) {
    if (stage.layers == 0) {
      return {};
    }
    layers.push_back(stage.layers);
  }
  return layers;
}

std::span<const uint32_t> KnownOf(const LiveSession& session, const WaveItem& where) {
  return std::span(session.tokens).subspan(where.position, where.rows);
}

// What the stages need to compute the item's first layers.
void BeginOnStages(const LiveSession& session, v1::StepItem* item) {
  if (item->position() == 0) {
    *item->mutable_params() = session.request.params;
  }
  for (const InputEmbedding& embedding :
       EmbeddingsWithin(session.request.embeddings, item->position(),
                        static_cast<uint32_t>(item->token_ids_size()))) {
    v1::EmbeddingRow* row = item->add_embedding_rows();
    row->set_position(embedding.position);
    row->set_values(embedding.values);
    row->set_digest(embedding.link);
  }
}

// What the last layer's rows are for.
void SetWanted(const LiveSession& session, bool ahead, v1::StepItem* item, SentItem* sent) {
  const uint32_t end = sent->position + sent->rows - static_cast<uint32_t>(sent->drafts.size());
  sent->sample = ahead || end == session.known();
  sent->top_logprobs = session.request.params.top_logprobs();
  sent->prompt_top_logprobs = session.request.params.prompt_top_logprobs();
  sent->digest_layers = session.request.digest_layers;
  item->set_sample(sent->sample);
  item->set_digest_layers(sent->digest_layers);
  const uint32_t first = std::max(sent->position, session.next_row);
  sent->first_wanted = first - sent->position;
  const bool logits = session.request.return_logits && first < end;
  const bool logprobs =
      session.request.prompt_logprobs && first + 1 < session.prompt_tokens && first < end;
  sent->rows_wanted = logits && logprobs ? v1::ROWS_WANTED_LOGITS_AND_LOGPROBS
                      : logits           ? v1::ROWS_WANTED_LOGITS
                      : logprobs         ? v1::ROWS_WANTED_LOGPROBS
                                         : v1::ROWS_WANTED_NONE;
  if (logits) {
    sent->payload_rows = end - first;
  }
  if (logprobs) {
    sent->row_logprobs = std::min(end, session.prompt_tokens - 1) - first;
    if (end < session.known()) {
      item->set_following_id(session.tokens[end]);
    }
  }
  item->set_rows_wanted(sent->rows_wanted);
  item->set_rows_from(sent->rows_wanted == v1::ROWS_WANTED_NONE ? 0 : sent->first_wanted);
}

}  // namespace

StepBuilder::StepBuilder(const EngineConfig& config, const StepTiming& timing,
                         SessionQueue* sessions, SequenceBook* book, MaskSlots* masks,
                         EngineCounters* counters)
    : config_(config),
      timing_(timing),
      sessions_(sessions),
      book_(book),
      masks_(masks),
      counters_(counters),
      waves_(LayersOf(config.stages)) {}

void StepBuilder::RenewWaves() { waves_ = LayerWaves(LayersOf(config_.stages)); }

void StepBuilder::DropGoneWaves() {
  waves_.Drop([this](const WaveItem& item) {
    const LiveSession* session = sessions_->Find(item.session);
    return session == nullptr || session->kv.sequence() != item.sequence;
  });
}

// What samples a token waits for its mask, and where more have masks than a step can name, for the
// next step.
uint32_t StepBuilder::PendingOf(const LiveSession& session, bool may_have_mask) {
  const uint32_t pending = session.known() - session.kv.sent();
  if (session.request.digest_layers) {
    return pending == 0 ? 0 : MostDigestedRows(session.known(), session.kv.sent());
  }
  if (pending == 0 || session.request.constraint == nullptr) {
    return pending;
  }
  return may_have_mask && !session.awaits_mask() ? pending : pending - 1;
}

std::optional<uint64_t> StepBuilder::SpareOfDrafts() const {
  const SessionQueue::ByRank& running = sessions_->running();
  const bool nobody_waits =
      sessions_->queued().empty() &&
      std::all_of(running.begin(), running.end(), [this](const auto& entry) {
        return HasRoom(book_->ledger(), *entry.second) || entry.second->waits_for_reader();
      });
  return nobody_waits ? std::optional(sessions_->Growing()) : std::nullopt;
}

bool StepBuilder::MayHaveItems(const LiveSession& session) const {
  const SessionKv& kv = session.kv;
  if (!HasRoom(book_->ledger(), session)) {
    return false;  // It waits for pages.
  }
  if (book_->prefixes().CachesPrefixOf(session) && !kv.begun()) {
    return false;  // It waits for what another one computes.
  }
  if (session.waits_for_reader()) {
    return false;  // Not among those that decode: others' micro-batches are not to wait for it.
  }
  // Else it computes again what it had: its last token waits for what is in the wave.
  const bool in_wave = kv.sequence() != 0 && waves_.Has(kv.sequence());
  return !in_wave || !session.decoding();
}

std::set<uint64_t> StepBuilder::WithoutMaskPlace() const {
  const size_t places = kMaxMaskedItems - std::min(kMaxMaskedItems, waves_.items());
  if (sessions_->running().size() <= places) {
    return {};
  }
  std::vector<std::pair<uint64_t, uint64_t>> wanted;  // By their last steps.
  for (const auto& [rank, session] : sessions_->running()) {
    if (session->request.constraint != nullptr && !session->request.digest_layers &&
        session->known() > session->kv.sent() && MayHaveItems(*session) &&
        !session->awaits_mask()) {
      wanted.emplace_back(session->last_step, session->id);
    }
  }
  std::sort(wanted.begin(), wanted.end());
  std::set<uint64_t> without;
  for (size_t i = places; i < wanted.size(); ++i) {
    without.insert(wanted[i].second);
  }
  return without;
}

SchedulerSnapshot StepBuilder::View(size_t steps_in_flight, TimePoint now) const {
  SchedulerSnapshot view;
  view.stages = static_cast<uint32_t>(config_.stages.size());
  view.steps_in_flight = static_cast<uint32_t>(steps_in_flight);
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
  const std::set<uint64_t> without_place = WithoutMaskPlace();
  for (const auto& [rank, running] : sessions_->running()) {
    const LiveSession& session = *running;
    const SessionKv& kv = session.kv;
    if (!MayHaveItems(session)) {
      continue;
    }
    const TimePoint mask_expected = session.mask_since + kMaskPatience;
    const bool lacks_mask = kv.sent() < session.known() && session.awaits_mask();
    // What computes the last of its tokens again is under way with a prompt's step, and what is
    // late with its mask is waited for no more.
    const bool decodes = session.decoding() && !(kv.replaying() && kv.sent() == session.known()) &&
                         (!lacks_mask || now < mask_expected);
    const std::optional<TimePoint> guesses_until =
        decodes && kv.sent() < session.known() ? session.guesses.AwaitedUntil(session.known(), now)
                                               : std::nullopt;
    view.decoding += decodes ? 1 : 0;
    view.decoding_attended += decodes ? session.known() : 0;
    if (decodes && (lacks_mask || guesses_until.has_value())) {
      ++view.masks_awaited;
      const TimePoint until = lacks_mask ? mask_expected : *guesses_until;
      view.masks_awaited_until = std::min(view.masks_awaited_until.value_or(until), until);
    }
    if (guesses_until.has_value()) {
      continue;
    }
    if (MayGoAhead(session)) {
      const auto guesses = static_cast<uint32_t>(kv.guesses().size());
      const auto more = static_cast<uint32_t>(GuessesAhead(session).size());
      view.ahead = {.id = session.id,
                    .guesses = guesses,
                    .drafts = std::min(more - 1, kMostDrafts),
                    .draft_chance = session.drafts.chance(),
                    .position = kv.sent() + guesses};
    }
    const bool may_have_mask = !without_place.contains(session.id);
    if (const uint32_t pending = PendingOf(session, may_have_mask); pending > 0) {
      view.ready.push_back(
          {.id = session.id,
           .pending = pending,
           .position = kv.sent(),
           .decoding = session.decoding(),
           .wants_logits = session.request.return_logits,
           .last_step = session.last_step,
           .priority = session.request.priority,
           .tenant = session.prefill_tenant,
           .spreads = !session.request.digest_layers,
           .drafts = std::min(static_cast<uint32_t>(session.drafts.next().size()), kMostDrafts),
           .draft_chance = session.drafts.chance(),
           .draft_won = session.drafts.won(),
           .certain_drafts = session.drafts.certain()});
    }
  }
  return view;
}

uint32_t StepBuilder::PlacesOfDrafts(const ScheduledStep& plan) const {
  uint32_t taken = waves_.items();
  for (const ScheduledItem& item : plan.items) {
    taken += sessions_->At(item.id).request.constraint != nullptr ? 1 : 0;
  }
  return kMaxMaskedItems - std::min(kMaxMaskedItems, taken);
}

void StepBuilder::AddItems(const ScheduledStep& plan, uint32_t decoding, v1::StepFrame* frame,
                           SentStep* sent) {
  // Before what may be behind them.
  if (plan.waves != WaveMove::kNone) {
    for (const WaveSlice& slice : waves_.Next(plan.waves == WaveMove::kFinish)) {
      AddSlice(slice, frame, sent);
    }
  }
  uint64_t embedding_bytes = 0;
  uint32_t decode_items = 0;
  std::vector<WaveItem> wave;
  const bool drafts_any = std::any_of(plan.items.begin(), plan.items.end(),
                                      [](const ScheduledItem& item) { return item.drafts > 0; });
  const std::optional<uint64_t> spare = drafts_any ? SpareOfDrafts() : std::nullopt;
  uint32_t places = drafts_any ? PlacesOfDrafts(plan) : 0;
  for (const ScheduledItem& item : plan.items) {
    LiveSession& session = sessions_->At(item.id);
    decode_items += session.decoding() ? 1 : 0;
    // What a frame's header has no room for comes with the next step.
    embedding_bytes +=
        BytesOf(EmbeddingsWithin(session.request.embeddings, session.kv.sent(), item.tokens));
    if (embedding_bytes > kMaxStepEmbeddingBytes && (frame->items_size() > 0 || !wave.empty())) {
      break;
    }
    uint32_t drafts = session.drafts.sets().empty() ? item.drafts : std::min(item.drafts, places);
    if (!item.ahead && drafts > 0) {
      drafts = book_->CoverDrafts(session, drafts, spare);
    }
    places -= session.drafts.sets().empty() ? 0 : drafts;
    const ItemTokens tokens = Send(session, item, drafts);
    const uint32_t rows = tokens.where.rows + drafts;
    sent->rows_begun += rows;
    if (plan.slices > 0) {
      wave.push_back(tokens.where);
    } else {
      AddItem(session, tokens, {}, frame, sent);
      sent->items.back().slowdown = plan.slowdown;
      sent->work.rows += rows;
      sent->work.attended += Attended(tokens.where.position, rows);
    }
  }
  if (!wave.empty()) {
    AddSlice(waves_.Begin(std::move(wave), plan.slices), frame, sent);
  }
  uint32_t rows = 0;
  for (const v1::StepItem& item : frame->items()) {
    rows += static_cast<uint32_t>(item.token_ids_size());
  }
  frame->set_rows(rows);
  if (decode_items > 0) {
    together_ = decode_items == decoding;
  }
}

std::span<const uint32_t> StepBuilder::GuessesAhead(const LiveSession& session) {
  const std::span<const uint32_t> sent = session.kv.guesses();
  const std::span<const uint32_t> next = session.drafts.next();
  const bool go_on =
      next.size() > sent.size() && std::equal(sent.begin(), sent.end(), next.begin());
  return go_on ? next.subspan(sent.size()) : std::span<const uint32_t>();
}

// Its state on the stages can be cut back to any token: nothing behind a window is gone. And each
// step of it has no more than its token as a result.
bool StepBuilder::MayGoAhead(const LiveSession& session) const {
  const SessionRequest& request = session.request;
  return config_.stages.size() > 1 && session.decoding() && !session.kv.replaying() &&
         session.kv.sequence() != 0 && session.kv.sent() == session.known() &&
         request.constraint == nullptr && !request.return_logits && !request.digest_layers &&
         std::none_of(config_.kv_groups.begin(), config_.kv_groups.end(),
                      [](const KvGroupSpec& group) { return group.kind == KvKind::kWindow; }) &&
         !GuessesAhead(session).empty();
}

void StepBuilder::CoverAhead(ScheduledStep* plan) {
  if (plan->items.size() != 1 || !plan->items.front().ahead) {
    return;
  }
  ScheduledItem& item = plan->items.front();
  LiveSession& session = sessions_->At(item.id);
  const auto sent = static_cast<uint32_t>(session.kv.guesses().size());
  const uint32_t covered = book_->CoverDrafts(session, sent + 1 + item.drafts, SpareOfDrafts());
  if (covered <= sent) {
    plan->items.clear();
  } else {
    item.drafts = covered - sent - 1;
  }
}

StepBuilder::ItemTokens StepBuilder::Send(LiveSession& session, const ScheduledItem& item,
                                          uint32_t drafts) {
  const uint32_t rows = item.tokens;
  session.last_step = counters_->steps_sent + 1;  // Step numbers begin anew with each epoch.
  if (session.decoding()) {
    last_decode_step_ = session.last_step;
  } else {
    last_prefill_step_ = session.last_step;
    sessions_->ServePrefill(session, rows);
  }
  if (item.ahead) {
    ++counters_->steps_ahead;
    const std::span<const uint32_t> guesses = GuessesAhead(session).first(1 + drafts);
    return {book_->SendAhead(session, guesses), guesses.first(1), guesses.subspan(1), true};
  }
  const std::span<const uint32_t> guesses = std::span(session.drafts.next()).first(drafts);
  const WaveItem where = book_->Send(session, rows, guesses);
  return {where, KnownOf(session, where), guesses};
}

void StepBuilder::AddSlice(const WaveSlice& slice, v1::StepFrame* frame, SentStep* sent) {
  StepWork work;
  bool heads = false;
  for (const WaveItem& tokens : slice.items) {
    const LiveSession& session = sessions_->At(tokens.session);
    AddItem(session, {tokens, KnownOf(session, tokens), {}}, {slice.from_layer, slice.end_layer},
            frame, sent);
    const SentItem& item = sent->items.back();
    heads |= item.sample || item.rows_wanted != v1::ROWS_WANTED_NONE;
    work.rows += tokens.rows;
    work.attended += Attended(tokens.position, tokens.rows);
  }
  last_prefill_step_ = counters_->steps_sent + 1;
  ++counters_->slices_sent;
  for (SliceWork& part : waves_.WorkOf(slice, work)) {
    part.heads = heads && part.stage + 1 == config_.stages.size();
    sent->slices.push_back(part);
  }
}

void StepBuilder::AddItem(const LiveSession& session, const ItemTokens& tokens,
                          const LayerRange& layers, v1::StepFrame* frame, SentStep* sent) {
  const WaveItem& where = tokens.where;
  const auto drafts = static_cast<uint32_t>(tokens.drafts.size());
  v1::StepItem* item = frame->add_items();
  item->mutable_sequence()->set_request_id(session.request.request_id);
  item->mutable_sequence()->set_generation(where.sequence);
  item->set_position(where.position);
  item->set_fingerprint(where.fingerprint);
  item->set_from_layer(layers.from);
  item->set_end_layer(layers.end);
  item->mutable_token_ids()->Add(tokens.known.begin(), tokens.known.end());
  item->mutable_token_ids()->Add(tokens.drafts.begin(), tokens.drafts.end());
  item->set_draft_tokens(drafts);
  SentItem record;
  record.session = session.id;
  record.sequence = where.sequence;
  record.request_id = session.request.request_id;
  record.position = where.position;
  record.rows = where.rows + drafts;
  record.drafts.assign(tokens.drafts.begin(), tokens.drafts.end());
  for (uint32_t i = 0; i < drafts + (tokens.ahead ? 1 : 0); ++i) {
    record.sources.push_back(session.drafts.SourceOf(i));
  }
  record.first_slice = layers.from == 0;
  record.last_slice = layers.end == 0;
  if (record.first_slice) {
    BeginOnStages(session, item);
  }
  if (record.last_slice) {
    SetWanted(session, tokens.ahead, item, &record);
  }
  if (record.sample && session.request.constraint != nullptr) {
    record.mask = session.request.constraint->Next();
    STRATA_CHECK(record.mask != nullptr);
    if (!record.mask->bits.empty()) {
      *item->mutable_mask() = masks_->Place(record.mask, frame);
      for (uint32_t i = 0; i < drafts; ++i) {
        record.draft_masks.push_back(session.drafts.sets()[draft_policy::SetBehind(i)]);
        *item->add_draft_masks() = masks_->Place(record.draft_masks.back(), frame);
      }
    }
  }
  sent->items.push_back(std::move(record));
}

}  // namespace strata
