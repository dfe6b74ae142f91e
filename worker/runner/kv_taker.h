// What a stage makes of KV that others give it, whose layers it is to have: docs/internals/kv.md,
// "KV that moves".
#ifndef STRATA_WORKER_RUNNER_KV_TAKER_H_
#define STRATA_WORKER_RUNNER_KV_TAKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/fingerprint.h"
#include "strata/v1/kv.pb.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/runner/carry_rounds.h"
#include "worker/runner/kv_pool.h"
#include "worker/runner/page_layers.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// Nothing that comes is believed: bytes have a checksum, and a sequence is taken with pages alone
// whose fingerprints are those of its tokens, computed here. Each of several sources has some of
// the layers; pages of theirs are one where they are of the same tokens, and which sequences there
// are one of the sources says. One thread at a time.
class KvTaker {
 public:
  static constexpr uint32_t kMostSources = 64;

  // All outlive it.
  KvTaker(const StageSpec* spec, SequenceTable* table, KvPool* pool, Shard* shard)
      : spec_(spec), table_(table), pool_(pool), shard_(shard) {}

  // The next part from a source; what came before an error stays. A page for which there is no room
  // is left out, and so are sequences with pages that are not there. DATA_LOSS (CARRIED_KV), and
  // those of the shard.
  absl::Status Take(uint32_t source, const v1::CarryKvPart& part);
  // Since End.
  TakenKv taken() const;
  // No more comes: pages that no sequence has are free.
  void End();

 private:
  using PageName = std::pair<uint32_t, uint32_t>;  // Group, and the giver's number.
  struct Source {
    std::optional<LayerRange> layers;
    std::vector<PagePart> parts = {};       // By group.
    std::map<PageName, PageId> pages = {};  // Of this pool.
    // The page whose pieces come, and what is there of it.
    PageName at_hand = {};
    std::vector<uint8_t> bytes = {};
  };
  // A page of the pool, which is held once.
  struct Page {
    Fingerprint fingerprint = 0;  // 0: what is in it is of no use.
    // By source: whose layers of these tokens are there, and who has a page by this one's name.
    uint64_t there = 0;
    uint64_t named = 0;
  };
  using Content = std::pair<uint32_t, Fingerprint>;  // Of pages of a group.

  absl::Status SetLayers(uint32_t source, const v1::CarriedLayers& layers);
  absl::Status TakePiece(uint32_t source, const v1::CarriedPage& piece);
  absl::Status TakePage(uint32_t source, const PageName& name, Fingerprint fingerprint);
  // The page that is to have what the source calls `name`; nullopt: there is no room.
  std::optional<PageId> PageFor(uint32_t source, const PageName& name, Fingerprint fingerprint);
  void Unname(uint32_t source, const PageName& name);
  absl::Status Write(uint32_t source, uint32_t group, PageId page);
  absl::Status TakeSequence(uint32_t source, const v1::CarriedSequence& carried);
  // Its ids, and what stands in the place of some.
  absl::Status TakeTokens(const v1::CarriedSequence& carried, Sequence* sequence) const;
  // `ends` are the fingerprints up to each token's end. False: pages are not there.
  absl::StatusOr<bool> TakeTable(uint32_t source, uint32_t group, const v1::CarriedTable& carried,
                                 const std::vector<Fingerprint>& ends, PageTable* table) const;
  // Of the sources: the first that has layers of all groups that this stage has some of; whether
  // all layers come from some.
  std::optional<uint32_t> Main() const;
  bool Covers() const;
  // Sources that have layers of the group.
  uint64_t Needed(uint32_t group) const;

  const StageSpec* const spec_;
  SequenceTable* const table_;
  KvPool* const pool_;
  Shard* const shard_;
  std::vector<Source> sources_;
  std::map<std::pair<uint32_t, PageId>, Page> pages_;  // By group.
  std::map<Content, std::set<PageId>> by_content_;
  bool left_out_ = false;  // A page was, for want of room.
  uint64_t taken_bytes_ = 0;
  uint64_t taken_sequences_ = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_KV_TAKER_H_
