// The book of sequences: what each session has of KV memory, what the stages were sent of it and
// what they have committed, and which sequences stay for the sake of their prefixes. Nothing else
// writes any of that. It fills the commands of steps and reads their results; when, the engine
// says.
#ifndef STRATA_COORDINATOR_ENGINE_SEQUENCE_BOOK_H_
#define STRATA_COORDINATOR_ENGINE_SEQUENCE_BOOK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/held_kv.h"
#include "coordinator/engine/kv_ledger.h"
#include "coordinator/engine/layer_waves.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/engine/named_sequences.h"
#include "coordinator/engine/prefix_sharing.h"
#include "coordinator/engine/result_check.h"

namespace strata {

// Of these stages' grants.
KvLedger NewLedger(const EngineConfig& config, const std::vector<EngineStage>& stages);

// Sessions that are passed are open: Open was called for them, and Close was not. One thread.
class SequenceBook {
 public:
  // All outlive the book. Of `counters` it counts item errors, replays, rebuilds and all of the
  // prefix cache.
  SequenceBook(const EngineConfig& config, SequenceNumbers* numbers, EngineCounters* counters);

  const KvLedger& ledger() const { return ledger_; }
  const HeldKv& held() const { return held_; }
  const PrefixSharing& prefixes() const { return prefixes_; }
  PrefixSharing& prefixes() { return prefixes_; }

  // A session begins, without a claim.
  void Open(LiveSession& session);
  // It ends. Where `may_keep` its sequence stays, if it is of use; else it is released.
  void Close(LiveSession& session, bool may_keep);

  // A claim for a session that has none, to begin on `shared`: see KvLedger::Reserve.
  bool Reserve(LiveSession& session, const KvSpare& spare, const KvPrefix& shared = {});
  // Has its claim cover all that it is to (wanted_claim), or changes nothing: false.
  bool Grow(LiveSession& session);
  // And up to `drafts` tokens behind that: how many. Pages for them it takes where `spare` pages
  // stay free everywhere; none without. They go back once the drafts are cut off.
  uint32_t CoverDrafts(LiveSession& session, uint32_t drafts, std::optional<uint64_t> spare);
  // The session gives up all that it has on the stages, and its claim.
  void GiveUp(LiveSession& session);
  // It is computed anew, under another number; its claim waits for the old one's Release.
  void Replay(LiveSession& session);
  // The steps in flight are lost: the session goes back to what was committed, or begins anew.
  void Rewind(LiveSession& session);
  // No stage has anything any more of `sessions`, all that are open, nor have they claims;
  // config.stages are the new grants.
  void ForgetAll(std::map<uint64_t, LiveSession>* sessions);
  // The stages have changed, and have what those before them had; config.stages are their grants,
  // no smaller ones.
  void Regrant();
  // It has all the tokens again that it had.
  void CaughtUp(LiveSession& session) { session.kv.replaying_ = false; }

  // Whether a step is of use for its commands alone.
  bool WantsCommands() const;
  // The sequence of a session that begins on another's pages: before the other commands, since what
  // it copies may be released or cut by the same step.
  void AddFork(LiveSession& session, v1::StepFrame* frame, SentStep* sent);
  // Cuts and Releases that are due.
  void AddCommands(v1::StepFrame* frame, SentStep* sent);
  // For an epoch's first frame: cuts every live sequence to what was committed, and every kept one
  // to what is cached of it; what it does not name is released.
  void AddResync(v1::StepFrame* frame, SentStep* sent);
  // The session's next `rows` tokens are sent from now on, and `drafts` behind all that is known.
  // It has a claim that covers them.
  WaveItem Send(LiveSession& session, uint32_t rows, std::span<const uint32_t> drafts = {});
  // So are `guesses`, behind all that was sent, which is all that is known and guesses: an item
  // ahead of the result of the one before it.
  WaveItem SendAhead(LiveSession& session, std::span<const uint32_t> guesses);

  // Results, in the order of the steps. `step`: the number of the step.
  void CommitFork(const SentCommand& fork, const v1::CommandResult& result);
  void CommitCut(const SentCommand& cut, const v1::CommandResult& result, uint64_t step);
  void CommitCutDrafts(const SentCommand& cut, const v1::CommandResult& result);
  // No stage holds the sequence any more.
  void CommitRelease(uint64_t number);
  void CommitResync(const SentStep& sent, const v1::StepResult& header);
  enum class ItemEnd {
    kIgnored,    // On what a rejected item left.
    kVoid,       // Behind a guess that was wrong.
    kRejected,   // The first of its sequence.
    kPart,       // Some of the layers.
    kCommitted,  // Its tokens.
  };
  struct ItemOutcome {
    ItemEnd end = ItemEnd::kIgnored;
    uint64_t session = 0;  // That it was for; 0: it ended, or has another sequence.
  };
  // But for drafts, whatever became of them.
  ItemOutcome CommitItem(const SentItem& sent, uint64_t step, const v1::ItemResult& item);
  // The session's newest token is the next draft of the item that was committed: its KV stays.
  void AcceptDraft(LiveSession& session);
  // The session's newest token was sampled behind all drafts of the item that was committed.
  // Whether it is what the item ahead begins with, which is then like any other.
  bool ConfirmAhead(LiveSession& session);
  // The others do not: they are cut off before anything follows, and items ahead come to nothing.
  void RejectDrafts(LiveSession& session);
  // The stages know of this step's commit: they freed what is behind windows by then.
  void RetainWindows(uint64_t committed_step) { held_.RetainCommitted(committed_step); }
  // Of a sequence whose Release is not committed.
  const std::string& RequestIdOf(uint64_t number) const { return sequences_.At(number).request_id; }

 private:
  // The session's sequence is given up; its claim goes on to `successor` (or nobody) on Release.
  void Detach(LiveSession& session, LiveSession* successor);
  // The claim that waits for it until its old sequence is released is nobody's.
  void CancelHandover(const LiveSession& session);
  // A stage has not what it was told to have: nothing more of it is committed.
  void Poison(KvSequence* sequence, uint32_t least);
  // A released sequence's pages return to the ledger, and its claim goes to its successor.
  void GiveBack(KvSequence* sequence);
  // Pages that a live sequence's claim has for drafts which no stage has any more.
  void GiveBackDraftPages(const KvSequence& sequence);

  const EngineConfig& config_;
  EngineCounters* const counters_;
  KvLedger ledger_;
  HeldKv held_;
  PrefixSharing prefixes_;
  NamedSequences sequences_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SEQUENCE_BOOK_H_
