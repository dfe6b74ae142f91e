// The items of a step: those that begin, as a whole or with the first slice of a wave, and the
// slices with which waves go on.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/ledger_policy.h"

namespace strata {

uint32_t Engine::Impl::AddItems(const ScheduledStep& plan, v1::StepFrame* frame, SentStep* sent) {
  // Before what may be behind them.
  if (plan.waves != WaveMove::kNone) {
    for (const WaveSlice& slice : waves_.Next(plan.waves == WaveMove::kFinish)) {
      AddSlice(slice, frame, sent);
    }
  }
  uint64_t embedding_bytes = 0;
  uint32_t decoding = 0;
  std::vector<WaveItem> wave;
  for (const ScheduledItem& item : plan.items) {
    Session& session = sessions_.at(item.id);
    decoding += session.decoding() ? 1 : 0;
    // What a frame's header has no room for comes with the next step.
    embedding_bytes +=
        BytesOf(EmbeddingsWithin(session.request.embeddings, session.sent, item.tokens));
    if (embedding_bytes > kMaxStepEmbeddingBytes && (frame->items_size() > 0 || !wave.empty())) {
      break;
    }
    const WaveItem tokens = BeginTokens(session, item.tokens);
    sent->rows_begun += tokens.rows;
    if (plan.slices > 0) {
      wave.push_back(tokens);
    } else {
      AddItem(session, tokens, {}, frame, sent);
      sent->work.rows += tokens.rows;
      sent->work.attended += Attended(tokens.position, tokens.rows);
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
  return decoding;
}

WaveItem Engine::Impl::BeginTokens(Session& session, uint32_t rows) {
  STRATA_CHECK(rows > 0 && rows <= session.known() - session.sent);
  STRATA_CHECK(session.sent + rows <= ledger_.Covers(*session.claim));
  if (session.generation == 0) {
    STRATA_CHECK(session.sent == 0 && session.committed == 0);
    NewSequence(session);
  }
  const WaveItem tokens{session.id, session.generation, session.sent, rows,
                        session.sent_fingerprint};
  session.last_step = counters_.steps_sent + 1;  // Step numbers begin anew with each epoch.
  if (session.decoding()) {
    last_decode_step_ = session.last_step;
  } else {
    last_prefill_step_ = session.last_step;
    prefill_shares_.Serve(session.prefill_tenant, rows);
  }
  for (uint32_t i = session.sent; i < session.sent + rows; ++i) {
    session.sent_fingerprint = FingerprintLink(session.sent_fingerprint, session.LinkAt(i));
  }
  session.sent += rows;
  sequences_.at(session.generation).sent = session.sent;
  if (ledger_policy::PublishesWhenSent()) {
    Publish(session, session.sent);
  }
  return tokens;
}

void Engine::Impl::AddSlice(const WaveSlice& slice, v1::StepFrame* frame, SentStep* sent) {
  StepWork work;
  bool heads = false;
  for (const WaveItem& tokens : slice.items) {
    AddItem(sessions_.at(tokens.session), tokens, {slice.from_layer, slice.end_layer}, frame, sent);
    const SentItem& item = sent->items.back();
    heads |= item.sample || item.rows_wanted != v1::ROWS_WANTED_NONE;
    work.rows += tokens.rows;
    work.attended += Attended(tokens.position, tokens.rows);
  }
  last_prefill_step_ = counters_.steps_sent + 1;
  ++counters_.slices_sent;
  for (SliceWork& part : waves_.WorkOf(slice, work)) {
    part.heads = heads && part.stage + 1 == config_.stages.size();
    sent->slices.push_back(part);
  }
}

void Engine::Impl::AddItem(const Session& session, const WaveItem& tokens, const LayerRange& layers,
                           v1::StepFrame* frame, SentStep* sent) {
  v1::StepItem* item = frame->add_items();
  item->mutable_sequence()->set_request_id(session.request.request_id);
  item->mutable_sequence()->set_generation(tokens.generation);
  item->set_position(tokens.position);
  item->set_fingerprint(tokens.fingerprint);
  item->set_from_layer(layers.from);
  item->set_end_layer(layers.end);
  const auto begin = session.tokens.begin() + tokens.position;
  item->mutable_token_ids()->Add(begin, begin + tokens.rows);
  SentItem record;
  record.session = session.id;
  record.generation = tokens.generation;
  record.request_id = session.request.request_id;
  record.position = tokens.position;
  record.rows = tokens.rows;
  record.first_slice = layers.from == 0;
  record.last_slice = layers.end == 0;
  if (record.first_slice) {
    BeginOnStages(session, item);
  }
  if (record.last_slice) {
    SetWanted(session, item, &record);
  }
  sent->items.push_back(std::move(record));
}

void Engine::Impl::BeginOnStages(const Session& session, v1::StepItem* item) {
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

void Engine::Impl::SetWanted(const Session& session, v1::StepItem* item, SentItem* sent) {
  const uint32_t end = sent->position + sent->rows;
  sent->sample = end == session.known();
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

}  // namespace strata
