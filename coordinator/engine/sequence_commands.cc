// What the book of sequences has steps do, and what it makes of their results.
#include <algorithm>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "coordinator/engine/draft_policy.h"
#include "coordinator/engine/ledger_policy.h"
#include "coordinator/engine/sequence_book.h"

namespace strata {
namespace {

// Releases of one step; the rest goes with the next.
constexpr size_t kMaxReleases = 4096;

void SetName(const KvSequence& sequence, v1::SequenceName* name) {
  name->set_request_id(sequence.request_id);
  name->set_generation(sequence.number);
}

void AddTruncate(const KvSequence& sequence, uint32_t length, Fingerprint fingerprint,
                 v1::StepFrame* frame, SentStep* sent) {
  v1::TruncateCommand* truncate = frame->add_commands()->mutable_truncate();
  SetName(sequence, truncate->mutable_sequence());
  truncate->set_length(length);
  truncate->set_fingerprint(fingerprint);
  sent->commands.push_back({.kind = CommandKind::kTruncate,
                            .sequence = sequence.number,
                            .length = length,
                            .fingerprint = fingerprint});
}

bool WantsDraftsCut(const KvSequence& sequence) {
  return sequence.session != nullptr && sequence.rejected > 0 && !sequence.cut_sent &&
         draft_policy::CutsRejected();
}

// A kept one, to what is cached of it.
void AddCut(const KvSequence& sequence, v1::StepFrame* frame, SentStep* sent) {
  AddTruncate(sequence, sequence.keep, sequence.chain->FingerprintAt(sequence.keep / kPageTokens),
              frame, sent);
}

}  // namespace

bool SequenceBook::WantsCommands() const {
  return std::any_of(sequences_.all().begin(), sequences_.all().end(), [](const auto& entry) {
    return entry.second->release_wanted || entry.second->cut_wanted ||
           WantsDraftsCut(*entry.second);
  });
}

void SequenceBook::AddFork(LiveSession& session, v1::StepFrame* frame, SentStep* sent) {
  sequences_.Name(session);
  KvSequence& sequence = *session.kv.current_;
  sequence.reached = sequence.sent;
  const uint64_t source = std::exchange(sequence.fork_source, 0);
  v1::ForkCommand* fork = frame->add_commands()->mutable_fork();
  SetName(sequences_.At(source), fork->mutable_source());
  SetName(sequence, fork->mutable_destination());
  fork->set_length(sequence.sent);
  fork->set_fingerprint(sequence.sent_fingerprint);
  *fork->mutable_params() = session.request.params;
  sent->commands.push_back({.kind = CommandKind::kFork,
                            .sequence = sequence.number,
                            .source = source,
                            .length = sequence.sent,
                            .fingerprint = sequence.sent_fingerprint});
}

void SequenceBook::AddCommands(v1::StepFrame* frame, SentStep* sent) {
  for (const auto& [number, sequence] : sequences_.all()) {
    if (std::exchange(sequence->cut_wanted, false)) {
      AddCut(*sequence, frame, sent);
      for (auto& [claim, step] : sequence->tails) {
        step = step == 0 ? sent->step : step;
      }
    } else if (WantsDraftsCut(*sequence)) {
      sequence->cut_sent = true;
      AddTruncate(*sequence, sequence->sent, sequence->sent_fingerprint, frame, sent);
      sent->commands.back().kind = CommandKind::kCutDrafts;
    }
  }
  size_t releases = 0;
  for (const auto& [number, sequence] : sequences_.all()) {
    if (sequence->release_wanted && releases < kMaxReleases) {
      ++releases;
      sequence->release_wanted = false;
      SetName(*sequence, frame->add_commands()->mutable_release()->mutable_sequence());
      sent->commands.push_back({.kind = CommandKind::kRelease, .sequence = number});
      if (ledger_policy::FreesWhenPlanned()) {
        GiveBack(sequence.get());
      }
    }
  }
}

void SequenceBook::AddResync(v1::StepFrame* frame, SentStep* sent) {
  held_.ForgetCommitted();
  for (const auto& [number, sequence] : sequences_.all()) {
    sequence->void_items = 0;  // Nothing is in flight.
    if (sequence->kept) {
      sequence->cut_wanted = false;
      AddCut(*sequence, frame, sent);
    } else if (sequence->session == nullptr) {
      sequence->release_wanted = false;
    } else {
      AddTruncate(*sequence, sequence->committed, sequence->committed_fingerprint, frame, sent);
    }
  }
}

WaveItem SequenceBook::Send(LiveSession& session, uint32_t rows, std::span<const uint32_t> drafts) {
  KvSequence& sequence = *session.kv.current_;
  STRATA_CHECK(rows > 0 && rows <= session.known() - sequence.sent);
  STRATA_CHECK(drafts.empty() || sequence.sent + rows == session.known());
  STRATA_CHECK(sequence.sent + rows + drafts.size() <= ledger_.Covers(*sequence.claim));
  if (sequence.number == 0) {
    STRATA_CHECK(sequence.sent == 0 && sequence.committed == 0);
    sequences_.Name(session);
  }
  const WaveItem tokens{session.id, sequence.number, sequence.sent, rows,
                        sequence.sent_fingerprint};
  for (uint32_t i = sequence.sent; i < sequence.sent + rows; ++i) {
    sequence.sent_fingerprint = FingerprintLink(sequence.sent_fingerprint, session.LinkAt(i));
  }
  sequence.sent += rows;
  sequence.guesses.assign(drafts.begin(), drafts.end());
  sequence.reached =
      std::max(sequence.reached, sequence.sent + static_cast<uint32_t>(drafts.size()));
  if (ledger_policy::PublishesWhenSent()) {
    prefixes_.Publish(session, sequence.sent);
  }
  return tokens;
}

WaveItem SequenceBook::SendAhead(LiveSession& session, std::span<const uint32_t> guesses) {
  KvSequence& sequence = *session.kv.current_;
  const auto before = static_cast<uint32_t>(sequence.guesses.size());
  STRATA_CHECK(sequence.number != 0 && sequence.sent == session.known() && !guesses.empty());
  STRATA_CHECK(sequence.sent + before + guesses.size() <= ledger_.Covers(*sequence.claim));
  Fingerprint fingerprint = sequence.sent_fingerprint;
  for (const uint32_t guess : sequence.guesses) {
    fingerprint = FingerprintLink(fingerprint, guess);
  }
  const WaveItem tokens{session.id, sequence.number, sequence.sent + before, 1, fingerprint};
  sequence.guesses.insert(sequence.guesses.end(), guesses.begin(), guesses.end());
  ++sequence.items_ahead;
  sequence.reached =
      std::max(sequence.reached, tokens.position + static_cast<uint32_t>(guesses.size()));
  return tokens;
}

void SequenceBook::Poison(KvSequence* sequence, uint32_t least) {
  sequence->poisoned = true;
  held_.SetHeld(sequence->number, least, sequence->reached);
}

void SequenceBook::CommitFork(const SentCommand& fork, const v1::CommandResult& result) {
  KvSequence& sequence = sequences_.At(fork.sequence);
  held_.HoldFork(fork.source, fork.sequence, fork.length, !result.has_error());
  if (!result.has_error()) {
    sequence.committed = fork.length;
    sequence.committed_fingerprint = fork.fingerprint;
    if (sequence.session == nullptr) {
      return;
    }
    prefixes_.CommitHit(*sequence.session, fork.length);
    return;
  }
  // A stage's record of the source is not what it was: nobody else shall begin on it.
  ++counters_->prefix_forks_failed;
  Poison(&sequence, 0);
  if (KvSequence* const source = sequences_.Find(fork.source); source != nullptr) {
    prefixes_.Drop(source);
  }
  if (sequence.session != nullptr) {
    ++counters_->replays;
    Replay(*sequence.session);
  }
}

void SequenceBook::CommitCut(const SentCommand& cut, const v1::CommandResult& result,
                             uint64_t step) {
  KvSequence& sequence = sequences_.At(cut.sequence);
  if (result.has_error()) {
    Poison(&sequence, 0);
    prefixes_.Drop(&sequence);
    return;  // What it had goes with its Release.
  }
  sequence.committed = sequence.sent = sequence.reached = cut.length;
  // After one that was refused nobody can tell what is shared with a Fork of it.
  held_.SetHeld(cut.sequence, sequence.poisoned ? 0 : cut.length, cut.length);
  prefixes_.FreeTails(&sequence, step);
}

void SequenceBook::CommitCutDrafts(const SentCommand& cut, const v1::CommandResult& result) {
  KvSequence& sequence = sequences_.At(cut.sequence);
  if (sequence.poisoned) {
    return;
  }
  if (result.has_error()) {
    Poison(&sequence, 0);
    prefixes_.Drop(&sequence);
    if (sequence.session != nullptr) {
      ++counters_->replays;
      Replay(*sequence.session);
    }
    return;
  }
  sequence.rejected = 0;
  sequence.cut_sent = false;
  sequence.reached =
      std::max(cut.length, sequence.sent + static_cast<uint32_t>(sequence.guesses.size()));
  held_.SetHeld(cut.sequence, cut.length, cut.length);
  GiveBackDraftPages(sequence);
}

void SequenceBook::CommitRelease(uint64_t number) {
  GiveBack(&sequences_.At(number));
  sequences_.Erase(number);
}

void SequenceBook::CommitResync(const SentStep& sent, const v1::StepResult& header) {
  std::set<uint64_t> named;
  for (const SentCommand& command : sent.commands) {
    named.insert(command.sequence);
  }
  std::vector<uint64_t> released;
  for (const auto& [number, sequence] : sequences_.all()) {
    if (!named.contains(number)) {
      released.push_back(number);
    }
  }
  for (const uint64_t number : released) {
    CommitRelease(number);
  }
  for (size_t i = 0; i < sent.commands.size(); ++i) {
    KvSequence& sequence = sequences_.At(sent.commands[i].sequence);
    if (!header.commands(static_cast<int>(i)).has_error()) {
      sequence.reached = sequence.committed = sent.commands[i].length;
      held_.SetHeld(sequence.number, sequence.committed, sequence.committed);
      held_.SetRetained(sequence.number, sequence.committed);
      prefixes_.FreeTails(&sequence, 0);
      GiveBackDraftPages(sequence);
      continue;
    }
    // A stage that started anew, say. What the others still have of it goes with its Release.
    Poison(&sequence, 0);
    prefixes_.Drop(&sequence);
    if (sequence.session != nullptr) {
      ++counters_->rebuilds;
      Replay(*sequence.session);
    }
  }
}

SequenceBook::ItemOutcome SequenceBook::CommitItem(const SentItem& sent, uint64_t step,
                                                   const v1::ItemResult& item) {
  // It exists: its Release comes in a later step than its items.
  KvSequence& sequence = sequences_.At(sent.sequence);
  const uint64_t session = sequence.session == nullptr ? 0 : sequence.session->id;
  const bool is_void = sequence.void_items > 0;
  sequence.void_items -= is_void ? 1 : 0;
  if (item.has_error()) {
    ++counters_->item_errors;
    if (sequence.poisoned) {
      return {};
    }
    Poison(&sequence, sequence.committed);
    return {ItemEnd::kRejected, session};
  }
  if (sequence.poisoned) {
    return {};
  }
  const uint32_t end = sent.position + sent.rows - static_cast<uint32_t>(sent.drafts.size());
  if (sent.first_slice) {
    held_.SetHeld(sent.sequence, sent.position + sent.rows, sent.position + sent.rows);
  }
  if (is_void) {
    return {ItemEnd::kVoid, session};
  }
  if (!sent.last_slice) {
    return {ItemEnd::kPart, session};
  }
  if (sequence.session != nullptr) {
    STRATA_CHECK(sequence.committed == sent.position);
    for (uint32_t i = sent.position; i < end; ++i) {
      sequence.committed_fingerprint =
          FingerprintLink(sequence.committed_fingerprint, sequence.session->LinkAt(i));
    }
  }
  sequence.committed = end;
  held_.NoteCommitted(step, sent.sequence, end);
  if (sequence.session != nullptr) {
    prefixes_.Publish(*sequence.session, end);
  }
  return {ItemEnd::kCommitted, session};
}

void SequenceBook::AcceptDraft(LiveSession& session) {
  KvSequence& sequence = *session.kv.current_;
  STRATA_CHECK(!sequence.guesses.empty() && sequence.committed == sequence.sent);
  STRATA_CHECK(sequence.sent + 1 == session.known());
  sequence.guesses.erase(sequence.guesses.begin());
  sequence.committed = ++sequence.sent;
  sequence.sent_fingerprint = sequence.committed_fingerprint =
      FingerprintLink(sequence.committed_fingerprint, session.LinkAt(sequence.sent - 1));
  prefixes_.Publish(session, sequence.committed);
}

bool SequenceBook::ConfirmAhead(LiveSession& session) {
  KvSequence& sequence = *session.kv.current_;
  STRATA_CHECK(sequence.sent + 1 == session.known());
  if (sequence.items_ahead == 0 ||
      !draft_policy::ConfirmsAhead(sequence.guesses.front(), session.tokens.back())) {
    return false;
  }
  --sequence.items_ahead;
  sequence.guesses.erase(sequence.guesses.begin());
  ++sequence.sent;
  sequence.sent_fingerprint =
      FingerprintLink(sequence.sent_fingerprint, session.LinkAt(sequence.sent - 1));
  if (ledger_policy::PublishesWhenSent()) {
    prefixes_.Publish(session, sequence.sent);
  }
  return true;
}

void SequenceBook::RejectDrafts(LiveSession& session) {
  KvSequence& sequence = *session.kv.current_;
  sequence.rejected = static_cast<uint32_t>(sequence.guesses.size());
  sequence.guesses.clear();
  sequence.void_items += std::exchange(sequence.items_ahead, 0);
}

}  // namespace strata
