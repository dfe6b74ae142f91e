// Which sequences of a pipeline hold which prefixes, and which of them give way. Knows sequences by
// number and prefixes by key; what it decides, the engine does.
#ifndef STRATA_COORDINATOR_PREFIX_PREFIX_CACHE_H_
#define STRATA_COORDINATOR_PREFIX_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/prefix/coming_prefixes.h"
#include "coordinator/prefix/prefix_chain.h"
#include "coordinator/prefix/prefix_tree.h"

namespace strata {

// A sequence is *live* while its session computes, and *kept* after that for the sake of its
// prefix, until it is evicted. Each stands at the node of its last published page; a node is there
// as long as a sequence stands at it or below. What a live sequence is going to publish is known
// too, so that who needs the same can wait for it. One thread.
class PrefixCache {
 public:
  struct Limits {
    size_t nodes = 1 << 20;
    size_t kept = 1024;  // Sequences. Beyond it the least recently used one goes.
  };

  explicit PrefixCache(Limits limits);
  PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    uint32_t pages = 0;   // The longest published prefix.
    uint64_t source = 0;  // A sequence that has it; 0: none.
    // Pages, at least `pages`, that there will be once `computing` got so far; 0: nobody does.
    uint32_t coming = 0;
    uint64_t computing = 0;
  };
  // Of the prefix with these keys, up to all of it (MostHitPages says how much may be asked for).
  // Changes nothing.
  Match Find(std::span<const PrefixKey> keys) const;

  // Sequences that have the published prefix that ends with `key`, and a page more: one for each
  // of the pages that follow it, the newest ones, at most `most`.
  std::vector<uint64_t> Continuations(const PrefixKey& key, size_t most) const;

  // A live sequence begins: on the `shared` published pages it is being given (which counts as a
  // use of them), and going to publish all of `keys`, those included. What another one already said
  // to be publishing stays that one's.
  void Begin(uint64_t sequence, std::span<const PrefixKey> keys, uint32_t shared);
  // The live sequence has committed all of `keys`, which begin with those published before.
  void Publish(uint64_t sequence, std::span<const PrefixKey> keys);
  // The sequence, live or kept, is gone or is not to be believed any more.
  void Remove(uint64_t sequence);

  // What is left of a kept sequence that gave way.
  struct Cut {
    uint64_t sequence = 0;
    uint32_t pages = 0;  // 0: forgotten here, to be released.
  };
  // The session of a live sequence ended, and its published pages stay. Kept sequences that say
  // nothing beyond others are forgotten, maybe this one: they are to be released.
  std::vector<Cut> Keep(uint64_t sequence);

  // Whether a kept sequence's page at this index returns to the pool if it alone gives it up.
  using ReturnsPage = std::function<bool(uint64_t sequence, uint32_t index)>;
  // Takes pages from kept sequences until `wanted` return to the pool or none would: always the
  // least recently used last page of any. Each sequence appears once in the answer. What two of
  // them shared with nobody else is found by the next call.
  std::vector<Cut> Evict(uint64_t wanted, const ReturnsPage& returns_page);

  // Everything is gone (the stages were loaded anew).
  void Clear();

  bool Has(uint64_t sequence) const { return sequences_.contains(sequence); }
  bool IsKept(uint64_t sequence) const;
  // Published pages of the sequence.
  uint32_t PagesOf(uint64_t sequence) const;
  size_t nodes() const { return tree_.nodes(); }
  size_t kept() const { return recent_.size(); }
  size_t live() const { return sequences_.size() - recent_.size(); }
  // Pages, prefixes and sequences that all calls so far went over, one by one: their work.
  uint64_t steps() const { return steps_; }

 private:
  using Node = PrefixNode;
  struct Sequence {
    Node* at = nullptr;  // Null: nothing published.
    size_t place = 0;    // In the node's list.
    bool kept = false;
    uint64_t used = 0;  // While kept: its place in recent_.
  };

  uint64_t SequenceAtOrBelow(const Node* node) const;
  void StandAt(uint64_t sequence, Node* node);
  void Leave(const Sequence& entry);
  void SetUsed(Node* node, uint64_t used);
  void RemoveIfEmpty(Node* node);
  void CountKept(Node* node, int change);
  void Forget(uint64_t sequence);
  bool CutLastPage(uint64_t sequence);
  uint64_t LeastRecent() const { return recent_.begin()->second; }

  const Limits limits_;
  uint64_t clock_ = 0;
  mutable uint64_t steps_ = 0;
  PrefixTree tree_;  // What is published.
  ComingPrefixes coming_;
  std::unordered_map<uint64_t, Sequence> sequences_;
  std::set<std::pair<uint64_t, uint64_t>> recent_;  // (used, kept sequence).
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PREFIX_PREFIX_CACHE_H_
