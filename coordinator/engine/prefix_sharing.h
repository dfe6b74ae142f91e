// Which cached prefixes sessions begin on, or wait for, what becomes of a sequence when its session
// has ended, and who gives way when pages are missing: the prefix cache (coordinator/prefix) with
// the sequences behind its names. Part of the book of sequences.
#ifndef STRATA_COORDINATOR_ENGINE_PREFIX_SHARING_H_
#define STRATA_COORDINATOR_ENGINE_PREFIX_SHARING_H_

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/prefix/prefix_cache.h"

namespace strata {

// What a session begins on: published pages, and `more` tokens of the one after them, which the
// source has too.
struct PrefixHit {
  PrefixCache::Match match;
  uint32_t more = 0;
};

// One thread.
class PrefixSharing {
 public:
  // `roots`: the fingerprints of no tokens, by rotary variant. The others outlive this; of
  // `counters` it counts what the prefix cache does, but for failed forks.
  PrefixSharing(const EngineConfig& config, std::array<Fingerprint, 2> roots, KvLedger* ledger,
                EngineCounters* counters);

  bool CachesPrefixOf(const LiveSession& session) const {
    return caches_ && session.request.embeddings.empty();
  }
  size_t kept() const { return cache_.kept(); }

  // The prefix that the session may begin on, or wait for; remembers whom it waits for.
  PrefixCache::Match Find(LiveSession& session) const;
  // The same with what is cached of the page after it, when it is to begin now.
  PrefixHit HitOf(LiveSession& session) const;
  // What of a match the session need not be charged for.
  KvPrefix SharedBy(const LiveSession& session, const PrefixCache::Match& match) const;
  // The session begins on `hit`, whose pages its claim shares, and is going to publish the rest of
  // what is known of it: its sequence has a name in the cache.
  void Begin(LiveSession& session, const PrefixHit& hit);
  // The session's sequence, which has no number, is where it was before Begin, and shares nothing.
  void Unbegin(LiveSession& session);
  // Where prefixes are cached, a session that has room for what is known of it begins on a cached
  // prefix, or at its first token; not while somebody computes its prefix.
  void BeginIfReady(LiveSession& session);
  // It was forked, and has so many tokens.
  void CommitHit(LiveSession& session, uint32_t tokens);
  // Its first `tokens` tokens are on every stage.
  void Publish(LiveSession& session, uint32_t tokens);

  // The session ends: its sequence stays, if it can, and others may have to go for it; else false.
  bool Keep(LiveSession& session);
  // Pages that sessions are to begin on, by their names in the prefix cache.
  using WantedPrefixes = std::unordered_map<uint64_t, uint32_t>;
  // Cached pages become free, as many as there are of those that are asked, but not the wanted
  // ones.
  void Evict(uint64_t pages, const WantedPrefixes& wanted = {});
  // The sequence is out of the cache, if it was in it; a kept one is to be released.
  void Drop(KvSequence* sequence);
  // Frees what `step` cut off of the sequence; 0: all that was, or is to be.
  void FreeTails(KvSequence* sequence, uint64_t step);
  void Clear();
  // Once it is clear, and no session has a chain: of another numerics class.
  void SetRoots(const std::array<Fingerprint, 2>& roots) { roots_ = roots; }

 private:
  // The sequence of that name, and its published pages.
  const KvSequence& SequenceOf(uint64_t holder) const { return *holders_.at(holder); }
  uint32_t PagesOf(const KvSequence& sequence) const { return cache_.PagesOf(sequence.holder); }
  std::unique_ptr<PrefixChain> NewChain(const SessionRequest& request) const;
  // Whether somebody still computes what it waits for.
  bool Waits(const LiveSession& session) const;
  // Not for a less important one that computes the prefix: those in between would hold up both.
  bool MayWaitFor(uint64_t holder, const LiveSession& session) const;
  void CutTo(KvSequence* sequence, uint32_t pages);
  void Apply(const std::vector<PrefixCache::Cut>& cuts);

  const EngineConfig& config_;
  std::array<Fingerprint, 2> roots_;
  const bool caches_;
  KvLedger* const ledger_;
  EngineCounters* const counters_;
  PrefixCache cache_;
  std::unordered_map<uint64_t, KvSequence*> holders_;  // By name in the cache.
  uint64_t next_holder_ = 1;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_PREFIX_SHARING_H_
