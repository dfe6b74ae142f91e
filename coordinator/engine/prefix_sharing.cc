#include "coordinator/engine/prefix_sharing.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/limits.h"

namespace strata {
namespace {

// Pages that are looked at for one that begins as a prompt goes on.
constexpr size_t kMostContinuations = 64;

// Of a window group only the newest pages are there: a prefix could not be forked.
bool CanShare(const EngineConfig& config) {
  return config.prefix_cache &&
         std::all_of(config.kv_groups.begin(), config.kv_groups.end(),
                     [](const KvGroupSpec& group) { return group.kind != KvKind::kWindow; });
}

}  // namespace

PrefixSharing::PrefixSharing(const EngineConfig& config, std::array<Fingerprint, 2> roots,
                             KvLedger* ledger, EngineCounters* counters)
    : config_(config),
      roots_(roots),
      caches_(CanShare(config)),
      ledger_(ledger),
      counters_(counters) {}

std::unique_ptr<PrefixChain> PrefixSharing::NewChain(const SessionRequest& request) const {
  PrefixScope scope;
  scope.weights_digest = config_.weights_digest;
  scope.numerics_class = config_.numerics_class;
  scope.rotary_variant = request.params.rotary_variant();
  scope.tenant_salt = request.cache_salt;
  return std::make_unique<PrefixChain>(PrefixRoot(scope), roots_[scope.rotary_variant]);
}

PrefixCache::Match PrefixSharing::Find(LiveSession& session) const {
  if (!CachesPrefixOf(session)) {
    return {};
  }
  if (session.kv.chain_ == nullptr) {
    session.kv.chain_ = NewChain(session.request);
  }
  session.kv.chain_->Extend(session.tokens);
  PrefixCache::Match match;
  // Where rows of every prompt token are wanted, all of them have to be computed.
  if (!session.request.prompt_logprobs && !session.request.return_logits &&
      !session.request.digest_layers) {
    const std::span<const PrefixKey> keys = session.kv.chain_->keys();
    match = cache_.Find(keys.first(MostHitPages(session.known())));
  }
  if (match.computing != 0 && !MayWaitFor(match.computing, session)) {
    match.computing = 0;
    match.coming = match.pages;
  }
  session.kv.awaited_holder_ = match.computing;
  session.kv.awaited_pages_ = match.coming;
  return match;
}

bool PrefixSharing::MayWaitFor(uint64_t holder, const LiveSession& session) const {
  const auto it = holders_.find(holder);
  const LiveSession* other = it == holders_.end() ? nullptr : it->second->session;
  return other == nullptr || other->request.priority >= session.request.priority;
}

PrefixHit PrefixSharing::HitOf(LiveSession& session) const {
  PrefixHit hit{Find(session)};
  if (hit.match.pages == 0 || hit.match.computing != 0) {
    return hit;
  }
  const uint32_t begin = hit.match.pages * kPageTokens;
  const std::span<const uint32_t> rest =
      std::span(session.tokens).subspan(begin, session.known() - 1 - begin);
  const PrefixKey& key = session.kv.chain_->keys()[hit.match.pages - 1];
  for (const uint64_t holder : cache_.Continuations(key, kMostContinuations)) {
    const KvSequence& sequence = SequenceOf(holder);
    const std::span<const uint32_t> page =
        std::span(sequence.session != nullptr ? sequence.session->tokens : sequence.tokens)
            .subspan(begin, kPageTokens);
    const auto alike = static_cast<uint32_t>(
        std::mismatch(page.begin(), page.end(), rest.begin(), rest.end()).first - page.begin());
    if (alike > hit.more) {
      hit.more = alike;
      hit.match.source = holder;
    }
  }
  return hit;
}

KvPrefix PrefixSharing::SharedBy(const LiveSession& session,
                                 const PrefixCache::Match& match) const {
  // What is guaranteed must not depend on whether a Fork succeeds.
  if (match.pages == 0 || match.computing != 0 || session.request.guaranteed) {
    return {};
  }
  return {*SequenceOf(match.source).claim, match.pages};
}

bool PrefixSharing::Waits(const LiveSession& session) const {
  return session.kv.awaited_holder_ != 0 && cache_.Has(session.kv.awaited_holder_) &&
         !cache_.IsKept(session.kv.awaited_holder_) &&
         cache_.PagesOf(session.kv.awaited_holder_) < session.kv.awaited_pages_;
}

void PrefixSharing::Begin(LiveSession& session, const PrefixHit& hit) {
  KvSequence& sequence = *session.kv.current_;
  const PrefixCache::Match& match = hit.match;
  sequence.holder = next_holder_++;
  holders_[sequence.holder] = &sequence;
  cache_.Begin(sequence.holder, session.kv.chain_->keys(), match.pages);
  if (!session.kv.cached_tokens_.has_value()) {
    ++counters_->prefix_queries;
    counters_->prefix_query_tokens += session.prompt_tokens;
    session.kv.cached_tokens_ = 0;
    session.kv.counts_hit_ = match.pages > 0;
  }
  if (match.pages > 0) {
    sequence.fork_source = SequenceOf(match.source).number;
    const uint32_t whole = match.pages * kPageTokens;
    sequence.sent = whole + hit.more;
    sequence.sent_fingerprint = session.kv.chain_->FingerprintAfter(
        match.pages, std::span(session.tokens).subspan(whole, hit.more));
  }
}

void PrefixSharing::Unbegin(LiveSession& session) {
  KvSequence& sequence = *session.kv.current_;
  Drop(&sequence);
  sequence.fork_source = 0;
  sequence.sent = 0;
  sequence.sent_fingerprint = sequence.committed_fingerprint;
  session.kv.awaited_holder_ = 0;
  if (sequence.claim.has_value()) {
    ledger_->Unshare(*sequence.claim);
  }
}

void PrefixSharing::BeginIfReady(LiveSession& session) {
  if (!CachesPrefixOf(session) || session.kv.begun() || !HasRoom(*ledger_, session) ||
      Waits(session)) {
    return;
  }
  const PrefixHit hit = HitOf(session);
  if (hit.match.computing != 0) {
    return;
  }
  if (const KvPrefix shared = SharedBy(session, hit.match); shared.pages > 0) {
    ledger_->Share(*session.kv.claim(), shared);
  }
  Begin(session, hit);
}

void PrefixSharing::CommitHit(LiveSession& session, uint32_t tokens) {
  Publish(session, tokens);
  if (std::exchange(session.kv.counts_hit_, false)) {
    session.kv.cached_tokens_ = std::min(tokens, session.prompt_tokens);
    ++counters_->prefix_hits;
    counters_->prefix_hit_tokens += *session.kv.cached_tokens_;
  }
}

void PrefixSharing::Publish(LiveSession& session, uint32_t tokens) {
  if (session.kv.current_->holder != 0) {
    session.kv.chain_->Extend(std::span(session.tokens).first(tokens));
    const std::span<const PrefixKey> keys = session.kv.chain_->keys();
    cache_.Publish(session.kv.current_->holder, keys.first(tokens / kPageTokens));
  }
}

void PrefixSharing::Clear() {
  cache_.Clear();
  holders_.clear();
}

bool PrefixSharing::Keep(LiveSession& session) {
  KvSequence& sequence = *session.kv.current_;
  if (session.request.digest_layers || sequence.holder == 0 || sequence.poisoned ||
      sequence.sent != sequence.committed || PagesOf(sequence) == 0) {
    return false;
  }
  const uint32_t pages = PagesOf(sequence);
  sequence.session = nullptr;
  sequence.kept = true;
  sequence.tokens.assign(session.tokens.begin(), session.tokens.begin() + pages * kPageTokens);
  sequence.chain = std::move(session.kv.chain_);
  ledger_->Cache(*sequence.claim);
  CutTo(&sequence, pages);
  Apply(cache_.Keep(sequence.holder));
  return true;
}

void PrefixSharing::CutTo(KvSequence* sequence, uint32_t pages) {
  sequence->keep = pages * kPageTokens;
  sequence->cut_wanted = true;
  sequence->tails.emplace_back(ledger_->SplitOff(*sequence->claim, sequence->keep), 0);
}

void PrefixSharing::Apply(const std::vector<PrefixCache::Cut>& cuts) {
  for (const PrefixCache::Cut& cut : cuts) {
    KvSequence* const sequence = holders_.at(cut.sequence);
    if (cut.pages > 0) {
      CutTo(sequence, cut.pages);
    } else {
      Drop(sequence);
    }
  }
}

void PrefixSharing::Drop(KvSequence* sequence) {
  if (sequence->holder != 0) {
    cache_.Remove(sequence->holder);
    holders_.erase(sequence->holder);
    sequence->holder = 0;
  }
  if (std::exchange(sequence->kept, false)) {
    sequence->release_wanted = true;
    sequence->cut_wanted = false;
    ledger_->Fence(*sequence->claim);
  }
}

void PrefixSharing::Evict(uint64_t pages, const WantedPrefixes& wanted) {
  const auto returns = [&](uint64_t holder, uint32_t index) {
    const auto it = wanted.find(holder);
    return (it == wanted.end() || index >= it->second) &&
           ledger_->IsOwn(*SequenceOf(holder).claim, index);
  };
  // What two of them shared with nobody else is found by the next turn.
  while (pages > 0) {
    const std::vector<PrefixCache::Cut> cuts = cache_.Evict(pages, returns);
    if (cuts.empty()) {
      return;
    }
    counters_->prefix_evictions += cuts.size();
    const uint64_t before = ledger_->cached_pages();
    Apply(cuts);
    pages -= std::min(pages, before - ledger_->cached_pages());
  }
}

void PrefixSharing::FreeTails(KvSequence* sequence, uint64_t step) {
  std::erase_if(sequence->tails, [&](const auto& tail) {
    const bool free = step == 0 || tail.second == step;
    if (free) {
      ledger_->Free(tail.first);
    }
    return free;
  });
}

}  // namespace strata
