// What a live session has of KV memory and on the stages. Read by the whole engine, written by its
// book of sequences (sequence_book.h) alone.
#ifndef STRATA_COORDINATOR_ENGINE_SESSION_KV_H_
#define STRATA_COORDINATOR_ENGINE_SESSION_KV_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/fingerprint.h"
#include "coordinator/engine/kv_ledger.h"
#include "coordinator/prefix/prefix_chain.h"

namespace strata {

struct LiveSession;

// KV on the stages under a name, the request id and a number, until the step with its Release is
// committed. It works for a session; once that does not need it any more it is kept for the sake of
// its prefix, or only its Release is left. One without a number is yet to come: no stage was told
// of it.
struct KvSequence {
  uint64_t number = 0;
  std::string request_id;
  LiveSession* session = nullptr;  // Null: none any more.
  // What is promised to it, and what its Release frees. None: a session that is queued, or that
  // waits for the Release of the sequence that it had.
  std::optional<KvLedger::ClaimId> claim;
  // Of a sequence whose session is computed anew: who takes over the claim when it is released.
  LiveSession* successor = nullptr;

  // Tokens that every stage has; that were sent and are to be committed; and that some stage may
  // have, which is more after a fault until its resynchronisation.
  uint32_t committed = 0;
  uint32_t sent = 0;
  uint32_t reached = 0;
  // Tokens that nobody knows yet and that were sent behind those: drafts of the newest item of
  // known tokens, and those of the items ahead of its result. How many are wrong and yet to be cut
  // off.
  std::vector<uint32_t> guesses;
  uint32_t rejected = 0;
  // Items in flight that begin with a guess; and those whose guess was wrong, which come before any
  // other item's result.
  uint32_t items_ahead = 0;
  uint32_t void_items = 0;
  bool cut_sent = false;  // Of the latter.
  // Of the tokens before them.
  Fingerprint committed_fingerprint = 0;
  Fingerprint sent_fingerprint = 0;
  bool poisoned = false;  // An item (or cut) of it was rejected: what follows is not committed.
  bool release_wanted = false;

  // With a prefix cache: its name there from when it began to be computed, and the sequence that it
  // is yet to be forked from (it has `sent` tokens then).
  uint64_t holder = 0;
  uint64_t fork_source = 0;
  // Kept: the first `keep` of `tokens` stay, with the fingerprints in `chain`; what is beyond is to
  // be cut off, and waits for that in `tails` (claim, and the step with its Truncate; 0: not sent).
  bool kept = false;
  bool cut_wanted = false;
  uint32_t keep = 0;
  std::vector<uint32_t> tokens;
  std::unique_ptr<PrefixChain> chain;
  std::vector<std::pair<KvLedger::ClaimId, uint64_t>> tails;
};

// A session's side: the sequence that works for it now, and what outlives that.
class SessionKv {
 public:
  SessionKv() = default;
  SessionKv(const SessionKv&) = delete;
  SessionKv& operator=(const SessionKv&) = delete;

  // The number of its sequence; 0: the stages have none.
  uint64_t sequence() const { return current_->number; }
  const std::optional<KvLedger::ClaimId>& claim() const { return current_->claim; }
  uint32_t committed() const { return current_->committed; }
  uint32_t sent() const { return current_->sent; }
  // Guesses that were sent behind those, and may be right.
  std::span<const uint32_t> guesses() const { return current_->guesses; }
  // Tokens that stages may have behind those, wrong ones included.
  uint32_t drafts() const {
    return static_cast<uint32_t>(current_->guesses.size()) + current_->rejected;
  }
  // Whether it is decided where it begins: on a cached prefix, or at its first token.
  bool begun() const { return current_->number != 0 || current_->holder != 0; }
  bool to_be_forked() const { return current_->fork_source != 0; }
  // Tokens that it already had are computed again.
  bool replaying() const { return replaying_; }
  // Of its first beginning, tokens that were not computed since they were cached.
  uint32_t cached_tokens() const { return cached_tokens_.value_or(0); }

 private:
  friend class NamedSequences;
  friend class SequenceBook;
  friend class PrefixSharing;

  KvSequence* current_ = nullptr;
  std::unique_ptr<KvSequence> unnamed_;  // While it has no number; then the book's.
  bool replaying_ = false;
  std::unique_ptr<PrefixChain> chain_;
  // Who computes pages that it needs too, and how many it waits for.
  uint64_t awaited_holder_ = 0;
  uint32_t awaited_pages_ = 0;
  std::optional<uint32_t> cached_tokens_;
  bool counts_hit_ = false;  // Its first beginning is a hit, and not yet committed.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SESSION_KV_H_
