// The prefix cache: which sessions begin on others' pages, what becomes of a sequence when its
// session has ended, and who gives way when pages are missing. coordinator/prefix keeps the tree.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/ledger_policy.h"

namespace strata {
namespace {

// Pages that are looked at for one that begins as a prompt goes on.
constexpr size_t kMostContinuations = 64;

}  // namespace

bool Engine::Impl::CachesPrefixes() const {
  // Of a window group only the newest pages are there: a prefix could not be forked.
  return config_.prefix_cache &&
         std::all_of(config_.kv_groups.begin(), config_.kv_groups.end(),
                     [](const KvGroupSpec& group) { return group.kind != KvKind::kWindow; });
}

std::unique_ptr<PrefixChain> Engine::Impl::NewChain(const SessionRequest& request) const {
  PrefixScope scope;
  scope.weights_digest = config_.weights_digest;
  scope.numerics_class = config_.numerics_class;
  scope.rotary_variant = request.params.rotary_variant();
  scope.tenant_salt = request.cache_salt;
  return std::make_unique<PrefixChain>(PrefixRoot(scope), RootOf(request));
}

void Engine::Impl::BeginSessions() {
  if (!caches_prefixes_) {
    return;
  }
  for (const auto& [rank, running] : running_) {
    Session& session = *running;
    const bool has_pages =
        session.claim.has_value() && ledger_.Covers(*session.claim) >= session.known();
    const bool begun = session.generation != 0 || session.holder != 0;
    if (CachesPrefixOf(session) && has_pages && !begun && !WaitsForPrefix(session)) {
      BeginSession(session);
    }
  }
}

bool Engine::Impl::WaitsForPrefix(const Session& session) const {
  return session.awaited_holder != 0 && prefix_.Has(session.awaited_holder) &&
         !prefix_.IsKept(session.awaited_holder) &&
         prefix_.PagesOf(session.awaited_holder) < session.awaited_pages;
}

PrefixCache::Match Engine::Impl::FindPrefix(Session& session) {
  if (!CachesPrefixOf(session)) {
    return {};
  }
  if (session.chain == nullptr) {
    session.chain = NewChain(session.request);
  }
  session.chain->Extend(session.tokens);
  PrefixCache::Match match;
  // Where rows of every prompt token are wanted, all of them have to be computed.
  if (!session.request.prompt_logprobs && !session.request.return_logits &&
      !session.request.digest_layers) {
    const std::span<const PrefixKey> keys = session.chain->keys();
    match = prefix_.Find(keys.first(MostHitPages(session.known())));
  }
  if (match.computing != 0 && !MayWaitFor(match.computing, session)) {
    match.computing = 0;
    match.coming = match.pages;
  }
  session.awaited_holder = match.computing;
  session.awaited_pages = match.coming;
  return match;
}

bool Engine::Impl::MayWaitFor(uint64_t holder, const Session& session) const {
  return std::none_of(running_.begin(), running_.end(), [&](const auto& running) {
    const Session& other = *running.second;
    return other.holder == holder && other.request.priority < session.request.priority;
  });
}

PrefixHit Engine::Impl::HitOf(Session& session) {
  PrefixHit hit{FindPrefix(session)};
  if (hit.match.pages == 0 || hit.match.computing != 0) {
    return hit;
  }
  const uint32_t begin = hit.match.pages * kPageTokens;
  const std::span<const uint32_t> rest =
      std::span(session.tokens).subspan(begin, session.known() - 1 - begin);
  const PrefixKey& key = session.chain->keys()[hit.match.pages - 1];
  for (const uint64_t holder : prefix_.Continuations(key, kMostContinuations)) {
    const Sequence& sequence = sequences_.at(holders_.at(holder));
    const std::span<const uint32_t> page =
        std::span(sequence.session != 0 ? sessions_.at(sequence.session).tokens : sequence.tokens)
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

KvPrefix Engine::Impl::SharedBy(const Session& session, const PrefixCache::Match& match) const {
  // What is guaranteed must not depend on whether a Fork succeeds.
  if (match.pages == 0 || match.computing != 0 || session.request.guaranteed) {
    return {};
  }
  const Sequence& source = sequences_.at(holders_.at(match.source));
  const std::optional<KvLedger::ClaimId> claim =
      source.session != 0 ? sessions_.at(source.session).claim : source.claim;
  return {*claim, match.pages};
}

void Engine::Impl::BeginSession(Session& session) {
  const PrefixHit hit = HitOf(session);
  if (hit.match.computing != 0) {
    return;
  }
  if (const KvPrefix shared = SharedBy(session, hit.match); shared.pages > 0) {
    ledger_.Share(*session.claim, shared);
  }
  Begin(session, hit);
}

void Engine::Impl::Begin(Session& session, const PrefixHit& hit) {
  const PrefixCache::Match& match = hit.match;
  session.holder = next_holder_++;
  prefix_.Begin(session.holder, session.chain->keys(), match.pages);
  if (!session.cached_tokens.has_value()) {
    ++counters_.prefix_queries;
    counters_.prefix_query_tokens += session.prompt_tokens;
    session.cached_tokens = 0;
    session.counts_hit = match.pages > 0;
  }
  if (match.pages > 0) {
    session.fork_source = holders_.at(match.source);
    const uint32_t whole = match.pages * kPageTokens;
    session.sent = whole + hit.more;
    session.sent_fingerprint = session.chain->FingerprintAfter(
        match.pages, std::span(session.tokens).subspan(whole, hit.more));
  }
}

void Engine::Impl::Unbegin(Session& session) {
  if (session.holder != 0) {
    prefix_.Remove(session.holder);
    holders_.erase(session.holder);
  }
  session.holder = session.fork_source = 0;
  session.awaited_holder = 0;
  if (session.claim.has_value()) {
    ledger_.Unshare(*session.claim);
  }
}

void Engine::Impl::NewSequence(Session& session) {
  session.generation = sequence_numbers_->Next();
  Sequence& sequence = sequences_[session.generation];
  sequence.request_id = session.request.request_id;
  sequence.session = session.id;
  sequence.holder = session.holder;
  if (session.holder != 0) {
    holders_[session.holder] = session.generation;
  }
}

void Engine::Impl::AddForks(v1::StepFrame* frame, SentStep* sent) {
  for (const auto& [rank, running] : running_) {
    Session& session = *running;
    if (session.fork_source == 0) {
      continue;
    }
    NewSequence(session);
    Sequence& sequence = sequences_.at(session.generation);
    sequence.sent = session.sent;
    v1::ForkCommand* fork = frame->add_commands()->mutable_fork();
    fork->mutable_source()->set_request_id(sequences_.at(session.fork_source).request_id);
    fork->mutable_source()->set_generation(session.fork_source);
    fork->mutable_destination()->set_request_id(sequence.request_id);
    fork->mutable_destination()->set_generation(session.generation);
    fork->set_length(session.sent);
    fork->set_fingerprint(session.sent_fingerprint);
    *fork->mutable_params() = session.request.params;
    sent->commands.push_back({.kind = CommandKind::kFork,
                              .generation = session.generation,
                              .source = session.fork_source,
                              .length = session.sent,
                              .fingerprint = session.sent_fingerprint});
    session.fork_source = 0;
  }
}

void Engine::Impl::CommitFork(const SentCommand& fork, const v1::CommandResult& result) {
  Sequence& sequence = sequences_.at(fork.generation);
  ledger_.HoldFork(fork.source, fork.generation, fork.length, !result.has_error());
  Session* session = Find(sequence.session);
  if (!result.has_error()) {
    sequence.committed = fork.length;
    if (session != nullptr) {
      session->committed = fork.length;
      session->committed_fingerprint = fork.fingerprint;
      Publish(*session, fork.length);
      if (std::exchange(session->counts_hit, false)) {
        session->cached_tokens = std::min(fork.length, session->prompt_tokens);
        ++counters_.prefix_hits;
        counters_.prefix_hit_tokens += *session->cached_tokens;
      }
    }
    return;
  }
  // A stage's record of the source is not what it was: nobody else shall begin on it.
  ++counters_.prefix_forks_failed;
  sequence.poisoned = true;
  ledger_.SetHeld(fork.generation, 0, sequence.sent);
  if (const auto source = sequences_.find(fork.source); source != sequences_.end()) {
    DropFromCache(fork.source, &source->second);
  }
  if (session != nullptr) {
    ++counters_.replays;
    Replay(*session);
  }
}

void Engine::Impl::Publish(Session& session, uint32_t tokens) {
  if (session.holder != 0) {
    session.chain->Extend(std::span(session.tokens).first(tokens));
    const std::span<const PrefixKey> keys = session.chain->keys();
    prefix_.Publish(session.holder, keys.first(tokens / kPageTokens));
  }
}

void Engine::Impl::CommitCut(const SentCommand& cut, const v1::CommandResult& result,
                             uint64_t step) {
  Sequence& sequence = sequences_.at(cut.generation);
  if (result.has_error()) {
    sequence.poisoned = true;
    ledger_.SetHeld(cut.generation, 0, sequence.sent);
    DropFromCache(cut.generation, &sequence);
    return;  // What it had goes with its Release.
  }
  sequence.committed = sequence.sent = cut.length;
  // After one that was refused nobody can tell what is shared with a Fork of it.
  ledger_.SetHeld(cut.generation, sequence.poisoned ? 0 : cut.length, cut.length);
  FreeTails(&sequence, step);
}

void Engine::Impl::FreeTails(Sequence* sequence, uint64_t step) {
  std::erase_if(sequence->tails, [&](const auto& tail) {
    const bool free = step == 0 || tail.second == step;
    if (free) {
      ledger_.Free(tail.first);
    }
    return free;
  });
}

bool Engine::Impl::KeepSequence(Session& session) {
  const uint64_t generation = session.generation;
  Sequence& sequence = sequences_.at(generation);
  if (session.request.digest_layers || session.holder == 0 || sequence.poisoned ||
      !fence_.running() || session.sent != session.committed ||
      prefix_.PagesOf(session.holder) == 0) {
    return false;
  }
  const uint32_t pages = prefix_.PagesOf(session.holder);
  sequence.session = 0;
  sequence.kept = true;
  sequence.tokens.assign(session.tokens.begin(), session.tokens.begin() + pages * kPageTokens);
  sequence.chain = std::move(session.chain);
  sequence.claim = std::exchange(session.claim, std::nullopt);
  ledger_.Cache(*sequence.claim);
  CutTo(&sequence, pages);
  session.generation = 0;
  session.holder = 0;
  Apply(prefix_.Keep(sequence.holder));
  return true;
}

void Engine::Impl::CutTo(Sequence* sequence, uint32_t pages) {
  sequence->keep = pages * kPageTokens;
  sequence->cut_wanted = true;
  sequence->tails.emplace_back(ledger_.SplitOff(*sequence->claim, sequence->keep), 0);
}

void Engine::Impl::Apply(const std::vector<PrefixCache::Cut>& cuts) {
  for (const PrefixCache::Cut& cut : cuts) {
    const uint64_t generation = holders_.at(cut.sequence);
    Sequence& sequence = sequences_.at(generation);
    if (cut.pages > 0) {
      CutTo(&sequence, cut.pages);
    } else {
      DropFromCache(generation, &sequence);
    }
  }
}

void Engine::Impl::DropFromCache(uint64_t generation, Sequence* sequence) {
  if (sequence->holder != 0) {
    prefix_.Remove(sequence->holder);
    holders_.erase(sequence->holder);
    sequence->holder = 0;
  }
  if (Session* session = Find(sequence->session);
      session != nullptr && session->generation == generation) {
    // It goes on, and publishes no more.
    session->holder = 0;
  }
  if (std::exchange(sequence->kept, false)) {
    sequence->release_wanted = true;
    sequence->cut_wanted = false;
    ledger_.Fence(*sequence->claim);
  }
}

void Engine::Impl::EvictPrefixes(uint64_t pages, const WantedPrefixes& wanted) {
  const auto returns = [&](uint64_t sequence, uint32_t index) {
    const auto it = wanted.find(sequence);
    return (it == wanted.end() || index >= it->second) &&
           ledger_.IsOwn(*sequences_.at(holders_.at(sequence)).claim, index);
  };
  // What two of them shared with nobody else is found by the next turn.
  while (pages > 0) {
    const std::vector<PrefixCache::Cut> cuts = prefix_.Evict(pages, returns);
    if (cuts.empty()) {
      return;
    }
    counters_.prefix_evictions += cuts.size();
    const uint64_t before = ledger_.cached_pages();
    Apply(cuts);
    pages -= std::min(pages, before - ledger_.cached_pages());
  }
}

void Engine::Impl::AddCuts(v1::StepFrame* frame, SentStep* sent) {
  for (auto& [generation, sequence] : sequences_) {
    if (!sequence.cut_wanted) {
      continue;
    }
    sequence.cut_wanted = false;
    AddTruncate(generation, sequence, sequence.keep,
                sequence.chain->FingerprintAt(sequence.keep / kPageTokens), frame, sent);
    for (auto& [claim, step] : sequence.tails) {
      step = step == 0 ? sent->step : step;
    }
  }
}

void Engine::Impl::AddTruncate(uint64_t generation, const Sequence& sequence, uint32_t length,
                               Fingerprint fingerprint, v1::StepFrame* frame, SentStep* sent) {
  v1::TruncateCommand* truncate = frame->add_commands()->mutable_truncate();
  truncate->mutable_sequence()->set_request_id(sequence.request_id);
  truncate->mutable_sequence()->set_generation(generation);
  truncate->set_length(length);
  truncate->set_fingerprint(fingerprint);
  sent->commands.push_back({.kind = CommandKind::kTruncate,
                            .generation = generation,
                            .length = length,
                            .fingerprint = fingerprint});
}

}  // namespace strata
