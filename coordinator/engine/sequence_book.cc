#include "coordinator/engine/sequence_book.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/model/model_spec.h"
#include "coordinator/engine/draft_policy.h"

namespace strata {
namespace {

std::array<Fingerprint, 2> RootsOf(const EngineConfig& config) {
  const auto root = [&config](uint32_t rotary_variant) {
    return FingerprintRoot(config.deployment, config.weights_digest, config.numerics_class,
                           /*adapter_digest=*/"", rotary_variant);
  };
  return {root(0), root(1)};
}

std::vector<KvStage> GrantsOf(const std::vector<EngineStage>& stages) {
  std::vector<KvStage> grants;
  grants.reserve(stages.size());
  for (const EngineStage& stage : stages) {
    grants.push_back({stage.node, stage.kv_pages});
  }
  return grants;
}

}  // namespace

KvLedger NewLedger(const EngineConfig& config, const std::vector<EngineStage>& stages) {
  return {GrantsOf(stages), config.kv_groups,
          KvRowsInFlight(stages.size(), config.max_batch_tokens)};
}

SequenceBook::SequenceBook(const EngineConfig& config, SequenceNumbers* numbers,
                           EngineCounters* counters)
    : config_(config),
      counters_(counters),
      ledger_(NewLedger(config, config.stages)),
      held_(GrantsOf(config.stages), config.kv_groups),
      prefixes_(config, RootsOf(config), &ledger_, counters),
      sequences_(RootsOf(config), numbers) {}

void SequenceBook::Open(LiveSession& session) { sequences_.Renew(session); }

void SequenceBook::Close(LiveSession& session, bool may_keep) {
  session.kv.current_->void_items += std::exchange(session.kv.current_->items_ahead, 0);
  if (session.kv.sequence() == 0) {
    prefixes_.Unbegin(session);
    if (session.kv.claim().has_value()) {
      ledger_.Free(*session.kv.claim());  // Nothing was ever sent under it.
    }
    CancelHandover(session);
  } else if (!may_keep || !prefixes_.Keep(session)) {
    Detach(session, nullptr);
  }
}

bool SequenceBook::Reserve(LiveSession& session, const KvSpare& spare, const KvPrefix& shared) {
  KvSequence& sequence = *session.kv.current_;
  sequence.claim = ledger_.Reserve(session.first_claim(), spare, shared);
  return sequence.claim.has_value();
}

bool SequenceBook::Grow(LiveSession& session) {
  return ledger_.Grow(*session.kv.claim(), session.wanted_claim());
}

uint32_t SequenceBook::CoverDrafts(LiveSession& session, uint32_t drafts,
                                   std::optional<uint64_t> spare) {
  const KvLedger::ClaimId claim = *session.kv.claim();
  const uint32_t wanted = session.known() + drafts;
  if (wanted > ledger_.Covers(claim) &&
      !(spare.has_value() && ledger_.GrowLeaving(claim, wanted, *spare))) {
    // To the end of its last page, which costs nothing.
    const uint32_t whole = FullGroupPages(ledger_.Covers(claim)) * kPageTokens;
    ledger_.Grow(claim, std::max(ledger_.Covers(claim), std::min(wanted, whole)));
  }
  return std::min(drafts, ledger_.Covers(claim) - session.known());
}

void SequenceBook::GiveBackDraftPages(const KvSequence& sequence) {
  if (sequence.session != nullptr && sequence.claim.has_value() && draft_policy::GivesPagesBack()) {
    ledger_.Shrink(*sequence.claim,
                   std::max(sequence.sent + static_cast<uint32_t>(sequence.guesses.size()),
                            sequence.session->first_claim()));
  }
}

void SequenceBook::GiveUp(LiveSession& session) {
  session.kv.replaying_ = session.kv.replaying_ || session.kv.committed() > 0;
  if (session.kv.sequence() != 0) {
    Detach(session, nullptr);
    return;
  }
  if (session.kv.claim().has_value()) {
    prefixes_.Unbegin(session);
    ledger_.Free(*session.kv.claim());  // Nothing was sent under it.
  } else {
    CancelHandover(session);
  }
  sequences_.Renew(session);
}

void SequenceBook::Replay(LiveSession& session) {
  Detach(session, &session);
  session.kv.replaying_ = true;
}

void SequenceBook::Rewind(LiveSession& session) {
  KvSequence& sequence = *session.kv.current_;
  if (!sequence.guesses.empty() && !draft_policy::FenceEndsDrafts()) {
    return;
  }
  sequence.guesses.clear();  // The resynchronisation cuts them off.
  sequence.rejected = sequence.items_ahead = 0;
  sequence.cut_sent = false;
  if (sequence.number == 0) {
    prefixes_.Unbegin(session);
  } else if (sequence.committed > 0) {
    sequence.sent = sequence.committed;
    sequence.sent_fingerprint = sequence.committed_fingerprint;
  } else {
    Detach(session, &session);  // It goes on as what it was, computed for the first time or again.
  }
}

void SequenceBook::ForgetAll(std::map<uint64_t, LiveSession>* sessions) {
  sequences_.SetRoots(RootsOf(config_));
  prefixes_.SetRoots(RootsOf(config_));
  for (auto& [id, session] : *sessions) {
    session.kv.replaying_ = session.kv.replaying_ || session.kv.committed() > 0;
    session.kv.awaited_holder_ = 0;
    session.kv.chain_.reset();
    sequences_.Renew(session);
  }
  sequences_.Clear();
  prefixes_.Clear();
  ledger_ = NewLedger(config_, config_.stages);
  held_ = HeldKv(GrantsOf(config_.stages), config_.kv_groups);
}

void SequenceBook::Regrant() {
  ledger_.Regrant(GrantsOf(config_.stages));
  held_.Regrant(GrantsOf(config_.stages));
}

void SequenceBook::Detach(LiveSession& session, LiveSession* successor) {
  KvSequence& sequence = *session.kv.current_;
  prefixes_.Drop(&sequence);
  sequence.session = nullptr;
  sequence.release_wanted = true;
  sequence.successor = successor;
  if (successor == nullptr) {
    ledger_.Fence(*sequence.claim);
  }
  sequences_.Renew(session);
}

void SequenceBook::CancelHandover(const LiveSession& session) {
  for (const auto& [number, sequence] : sequences_.all()) {
    if (sequence->successor == &session) {
      sequence->successor = nullptr;
      if (sequence->claim.has_value()) {
        ledger_.Fence(*sequence->claim);
      }
    }
  }
}

void SequenceBook::GiveBack(KvSequence* sequence) {
  held_.DropHeld(sequence->number);
  prefixes_.FreeTails(sequence, 0);
  const std::optional<KvLedger::ClaimId> claim = std::exchange(sequence->claim, std::nullopt);
  LiveSession* const successor = std::exchange(sequence->successor, nullptr);
  if (claim.has_value() && successor != nullptr) {
    ledger_.Unshare(*claim);  // It begins anew, and may have to compute all of it.
    successor->kv.current_->claim = claim;
    GiveBackDraftPages(*successor->kv.current_);
  } else if (claim.has_value()) {
    ledger_.Free(*claim);
  }
}

}  // namespace strata
