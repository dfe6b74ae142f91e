// The one accountant of what is promised of a pipeline's KV memory: a vector over (stage, KV
// group), in pages.
#ifndef STRATA_COORDINATOR_ENGINE_KV_LEDGER_H_
#define STRATA_COORDINATOR_ENGINE_KV_LEDGER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/model/model_spec.h"
#include "coordinator/engine/kv_stage.h"
#include "coordinator/engine/window_pages.h"
#include "coordinator/prefix/page_book.h"

namespace strata {

// Pages of one stage and KV group; total = free + live + cached + fenced.
struct KvSnapshot {
  uint32_t stage = 0;
  uint32_t group = 0;
  uint64_t total = 0;
  uint64_t free = 0;
  uint64_t live = 0;    // Promised to running sessions.
  uint64_t cached = 0;  // Held by cached prefixes.
  uint64_t fenced = 0;  // Released, but the step with the Release is not committed yet.
};

// Pages by component: stage, then KV group.
using KvPages = std::vector<uint64_t>;

// Pages that a new claim leaves free in every component: `pages`, but no more than this share of
// it.
struct KvSpare {
  uint64_t pages = 0;
  double most_share = 1;
};

// The first pages of a claim that is live or cached, for another one to begin with.
struct KvPrefix {
  uint64_t source = 0;  // The claim.
  uint32_t pages = 0;
};

// Claims are promises: what a session sends to the stages is within its claim, which is why what
// was admitted never fails for memory. A page that several claims share counts once, for the first
// of live, cached and fenced that any of them is, and until the last of them gives it up; who
// shares pages here must share them on the stages too. A claim covers what its sequence may come to
// have at once, of a window group the newest pages. Who has window groups shares no pages. What the
// stages really hold is HeldKv's (held_kv.h). One thread.
class KvLedger {
 public:
  using ClaimId = uint64_t;

  // `rows_in_flight`: the most tokens of a sequence that are sent and that a stage does not know to
  // be committed.
  KvLedger(const std::vector<KvStage>& stages, const std::vector<KvGroupSpec>& groups,
           uint64_t rows_in_flight = 0);

  // Other stages, whose least pages of each group are no fewer: claims stay. As many of them where
  // there are window groups.
  void Regrant(const std::vector<KvStage>& stages);

  // The longest sequence that the empty pool holds, in tokens: the minimum over the components;
  // kMaxContextTokens where windows bound none.
  uint64_t capacity_tokens() const { return capacity_tokens_; }
  // The stage that limits it.
  uint32_t limiting_stage() const { return limiting_stage_; }

  // Promises room for `length` tokens on every stage (live), or nothing. What it shares with
  // `prefix` needs no room.
  bool Fits(uint32_t length, const KvSpare& spare = {}, const KvPrefix& prefix = {}) const;
  std::optional<ClaimId> Reserve(uint32_t length, const KvSpare& spare = {},
                                 const KvPrefix& prefix = {});
  // Pages that must be free for that, by component.
  KvPages Asked(uint32_t length, const KvSpare& spare, const KvPrefix& prefix = {}) const;
  // A live claim that shares no page takes those of `prefix` for its first ones, which it gives up.
  // It covers as much as before.
  void Share(ClaimId claim, const KvPrefix& prefix);
  // Its sequence begins anew, with pages of its own on the stages: it gives up those that it shares
  // with anyone, and covers no more than the others hold.
  void Unshare(ClaimId claim);
  // Tokens that a claim covers.
  uint32_t Covers(ClaimId claim) const;
  // Has a live claim cover `length` tokens, on every stage; or changes nothing: false.
  bool Grow(ClaimId claim, uint32_t length);
  // The same, where `spare` pages of every component stay free.
  bool GrowLeaving(ClaimId claim, uint32_t length, uint64_t spare);
  // Has a live claim cover no more than `length` tokens: its pages behind them, which it shares
  // with nobody, are free.
  void Shrink(ClaimId claim, uint32_t length);
  // What Grow would take, what a claim has, and what is free, now or once it is not fenced any
  // more.
  KvPages Growth(ClaimId claim, uint32_t length) const;
  KvPages PagesOf(ClaimId claim) const;
  KvPages Free() const;
  KvPages FreeSoon() const;
  // Of every component that is used.
  uint64_t cached_pages() const { return claimed_.pages(PageUse::kCached); }
  // Whether nobody but this claim keeps its page at `index` from becoming free.
  bool IsOwn(ClaimId claim, uint32_t index) const;
  // Whether it would fit if nothing were cached.
  bool FitsWithoutCached(uint32_t length, const KvSpare& spare) const;
  // Live to cached: its session ended, and its prefix stays.
  void Cache(ClaimId claim) { SetUse(claim, PageUse::kCached); }
  // The claim is left with its first `length` tokens, whole pages of them and no more than it
  // covers; the rest is a fenced claim from now on.
  ClaimId SplitOff(ClaimId claim, uint32_t length);
  // To fenced: a Release is to come.
  void Fence(ClaimId claim) { SetUse(claim, PageUse::kFenced); }
  // The Release is committed, or nothing was ever sent.
  void Free(ClaimId claim);

  std::vector<KvSnapshot> Snapshot() const;
  // Claims that are not cached.
  size_t claims() const { return claims_.size() - cached_claims_; }

 private:
  struct Component {
    uint32_t stage = 0;
    uint32_t group = 0;
    uint64_t total = 0;
    uint64_t free = 0;
  };
  struct Claim {
    uint32_t length = 0;
    uint32_t charged = 0;  // The length that its pages are counted for.
  };

  void SetComponents(const std::vector<KvStage>& stages);
  // Of the components.
  void SetCapacity();
  // What `pages` of a sequence in a full group are in every component that is used.
  KvPages Everywhere(uint64_t pages) const;
  // Claimed pages of a component of this group.
  uint64_t ClaimedPages(uint32_t group, PageUse use) const;
  uint64_t ClaimedPages(uint32_t group) const;
  // Runs `change`, which changes only these claims, on the claims' book; sets what is free then.
  template <typename Change>
  void Book(std::initializer_list<ClaimId> claims, const Change& change);
  uint32_t Begin(ClaimId claim, const KvPrefix& prefix);
  void SetUse(ClaimId claim, PageUse use);

  ClaimedWindowPages windows_;
  std::vector<Component> components_;  // By stage, then group.
  std::unordered_map<ClaimId, Claim> claims_;
  PageBook claimed_;  // Their pages, by claim: every component needs as many.
  size_t cached_claims_ = 0;
  ClaimId next_claim_ = 1;
  uint64_t capacity_tokens_ = 0;
  uint32_t limiting_stage_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_KV_LEDGER_H_
