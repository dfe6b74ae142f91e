#include "coordinator/engine/step_results.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/draft_policy.h"

namespace strata {
namespace {

// Of a worker's error message.
constexpr size_t kMaxErrorBytes = 1024;

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

StepResults::StepResults(const EngineConfig& config, SessionQueue* sessions, SequenceBook* book,
                         SuspectSearch* suspects, SessionEnds* ends, MaskSlots* masks,
                         EngineCounters* counters)
    : config_(config),
      sessions_(sessions),
      book_(book),
      suspects_(suspects),
      ends_(ends),
      masks_(masks),
      counters_(counters) {}

absl::Status StepResults::CommitCommands(const SentStep& sent, const v1::StepResult& header) {
  absl::Status status;
  for (size_t i = 0; i < sent.commands.size(); ++i) {
    const v1::CommandResult& result = header.commands(static_cast<int>(i));
    const SentCommand& command = sent.commands[i];
    if (command.kind == CommandKind::kFork) {
      book_->CommitFork(command, result);
      continue;
    }
    if (command.kind == CommandKind::kCutDrafts) {
      book_->CommitCutDrafts(command, result);
      continue;
    }
    if (command.kind == CommandKind::kTruncate) {
      book_->CommitCut(command, result, sent.step);
      continue;
    }
    // Not found: its first item was rejected, or the stage lost it, which the counts of pages show.
    if (result.has_error() &&
        result.error().code() != static_cast<uint32_t>(absl::StatusCode::kNotFound)) {
      status =
          ItemStatus(book_->RequestIdOf(command.sequence), result.error_stage(), result.error());
      continue;  // The fence that follows releases it.
    }
    book_->CommitRelease(command.sequence);
  }
  return status;
}

void StepResults::CommitItems(const SentStep& sent, const ResultMessage& result,
                              const StepTimes& times, TimePoint now) {
  std::span<const float> logits = result.payload;
  for (size_t i = 0; i < sent.items.size(); ++i) {
    const v1::ItemResult& item = result.header.items(static_cast<int>(i));
    const size_t values = size_t{item.payload_rows()} * config_.vocab;
    CommitItem(sent.items[i], sent.step, item, logits.subspan(0, values), times, now);
    logits = logits.subspan(values);
  }
}

void StepResults::CommitItem(const SentItem& sent, uint64_t step, const v1::ItemResult& item,
                             std::span<const float> logits, const StepTimes& times, TimePoint now) {
  const SequenceBook::ItemOutcome outcome = book_->CommitItem(sent, step, item);
  LiveSession* session = sessions_->Find(outcome.session);
  if (session == nullptr || outcome.end == SequenceBook::ItemEnd::kIgnored) {
    return;
  }
  if (outcome.end == SequenceBook::ItemEnd::kVoid) {
    ++counters_->steps_void;
    counters_->tokens_drafted += sent.rows;
    CountDrafted(sent.sources);
    session->drafts.NoteVoid(sent.rows);
    return;
  }
  if (outcome.end == SequenceBook::ItemEnd::kRejected) {
    OnItemError(*session, sent, item);
    return;
  }
  ++session->steps;
  session->times += times;
  if (outcome.end == SequenceBook::ItemEnd::kCommitted) {
    suspects_->NoteCommitted(session->id, session->kv.committed());
    DeliverRows(*session, sent, item, logits);
    if (sent.sample) {
      DeliverTokens(*session, sent, item, now);
    } else if (session->request.constraint == nullptr) {
      session->drafts.Refresh(session->tokens, session->most_drafts());
    }
  }
}

void StepResults::DeliverTokens(LiveSession& session, const SentItem& sent,
                                const v1::ItemResult& item, TimePoint now) {
  const uint64_t id = session.id;
  const auto drafted = static_cast<uint32_t>(sent.drafts.size());
  const auto sampled = static_cast<uint32_t>(item.tokens_size());
  session.drafts.Note(drafted, sampled - 1, sent.slowdown);
  counters_->tokens_drafted += drafted;
  const std::span<const DraftSource> sources = std::span(sent.sources).last(drafted);
  CountDrafted(sources);
  const uint32_t accepted = draft_policy::Accepted(sampled, drafted);
  bool ahead = false;
  for (uint32_t i = 0; i < sampled; ++i) {
    if (i + 1 < sampled) {
      session.drafts.Accept();
      ++counters_->drafts_accepted;
      ++counters_->accepted_by_source[sources[i]];
    }
    DeliverToken(session, item.tokens(static_cast<int>(i)), now);
    if (sessions_->Find(id) == nullptr) {
      return;  // It has ended, and what is behind that is nobody's.
    }
    if (i < accepted) {
      book_->AcceptDraft(session);
    } else {
      ahead = i == drafted && book_->ConfirmAhead(session);
    }
  }
  if (!ahead) {
    book_->RejectDrafts(session);
  }
  RefreshDrafts(session);
}

void StepResults::CountDrafted(std::span<const DraftSource> sources) {
  for (const DraftSource source : sources) {
    ++counters_->drafted_by_source[source];
  }
}

void StepResults::RefreshDrafts(LiveSession& session) {
  if (session.request.constraint == nullptr) {
    session.drafts.Refresh(session.tokens, session.most_drafts());
    return;
  }
  session.request.constraint->Ask(session.drafts.Wish(session.tokens, session.most_drafts()));
  TakeSets(session);
}

void StepResults::TakeSets(LiveSession& session) {
  TokenConstraint& constraint = *session.request.constraint;
  if (constraint.Next() == nullptr) {
    return;
  }
  session.drafts.Hold(constraint.Ahead());
  if (const std::optional<DraftWish> wish = session.drafts.WishBehind(session.tokens)) {
    constraint.Ask(*wish);
    if (constraint.Next() != nullptr) {
      session.drafts.Hold(constraint.Ahead());
    }
  }
}

void StepResults::DeliverRows(LiveSession& session, const SentItem& sent,
                              const v1::ItemResult& item, std::span<const float> logits) {
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

void StepResults::DeliverToken(LiveSession& session, const v1::TokenLogprob& token, TimePoint now) {
  const SessionRequest& request = session.request;
  const uint32_t index = session.generated();
  session.tokens.push_back(token.token_id());
  sessions_->Charge(session);
  book_->CaughtUp(session);
  ++counters_->tokens_generated;
  if (!session.first_token.has_value()) {
    session.first_token = now;
  }
  const bool is_stop_id =
      !request.ignore_eos && std::find(request.stop_ids.begin(), request.stop_ids.end(),
                                       token.token_id()) != request.stop_ids.end();
  const Verdict verdict =
      session.sink->OnToken({.token = token, .index = index, .is_stop_id = is_stop_id});
  if (is_stop_id || verdict == Verdict::kStop) {
    ends_->Finish(session, "stop", now);
  } else if (request.constraint != nullptr) {
    request.constraint->Take(token.token_id());
    session.mask_since = now;
    EndWhereItMust(session, now);
  } else if (session.generated() >= session.max_tokens) {
    ends_->Finish(session, "length", now);
  }
}

void StepResults::EndWhereItMust(LiveSession& session, TimePoint now) {
  TokenConstraint& constraint = *session.request.constraint;
  if (const absl::Status problem = constraint.problem(); !problem.ok()) {
    ends_->Fail(session, problem);
    return;
  }
  const std::shared_ptr<const NextTokens> next = constraint.Next();
  if (next == nullptr) {
    return;
  }
  if (!IsOfVocabulary(*next, config_.vocab)) {
    ends_->Fail(session, Error(absl::StatusCode::kInternal, "MASK_FAILED",
                               "a mask of the answer is of another vocabulary than the model's"));
    return;
  }
  if (next->complete) {
    ends_->Finish(session, "stop", now);
  } else if (session.generated() >= session.max_tokens) {
    ends_->Finish(session, "length", now);
  }
}

void StepResults::OnItemError(LiveSession& session, const SentItem& sent,
                              const v1::ItemResult& item) {
  const absl::Status status = ItemStatus(sent.request_id, item.error_stage(), item.error());
  if (item.error().reason() == "MASK_NOT_FOUND") {
    masks_->Clear();  // What the stage holds is not known any more: all of them are sent again.
  }
  if (item.error().reason() == "DRAFT_TOKENS_UNSUPPORTED") {
    stages_refuse_drafts_ = true;
  }
  if (item.error().reason() == "DRAFT_MASKS_UNSUPPORTED") {
    stages_refuse_draft_masks_ = true;
  }
  // The stage has other state than the one named (or no room for what the ledger promised): the
  // tokens are known, so the session can start over.
  const bool replayable = absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
                          absl::IsResourceExhausted(status);
  if (!replayable && !sent.drafts.empty()) {
    // It may be about tokens that are not the session's at all: once more, without any such.
    session.drafts.Stop();
    ++counters_->replays;
    book_->Replay(session);
  } else if (replayable && session.replays < kMaxReplays) {
    ++session.replays;
    ++counters_->replays;
    book_->Replay(session);
  } else {
    ends_->Fail(session, status);
  }
}

absl::Status StepResults::ItemStatus(const std::string& request_id, uint32_t stage,
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
