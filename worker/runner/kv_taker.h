// What a stage makes of KV that another one gives it, whose place it is to take:
// docs/internals/kv.md, "KV that moves".
#ifndef STRATA_WORKER_RUNNER_KV_TAKER_H_
#define STRATA_WORKER_RUNNER_KV_TAKER_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/fingerprint.h"
#include "strata/v1/kv.pb.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/runner/kv_pool.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// Nothing that comes is believed: bytes have a checksum, and a sequence is taken with pages alone
// whose fingerprints are those of its tokens, computed here. One thread at a time.
class KvTaker {
 public:
  // All outlive it.
  KvTaker(const StageSpec* spec, SequenceTable* table, KvPool* pool, Shard* shard)
      : spec_(spec), table_(table), pool_(pool), shard_(shard) {}

  // The next part; what came before an error stays. DATA_LOSS (CARRIED_KV), RESOURCE_EXHAUSTED
  // (KV_PAGES), and those of the shard.
  absl::Status Take(const v1::CarryKvPart& part);
  // Of pages, since End.
  uint64_t taken_bytes() const { return taken_bytes_; }
  uint64_t taken_sequences() const { return taken_sequences_; }
  // No more comes: pages that no sequence has are free.
  void End();

 private:
  struct Page {
    PageId page = 0;  // Of this pool.
    Fingerprint fingerprint = 0;
  };
  using PageName = std::pair<uint32_t, uint32_t>;  // Group, and the giver's number.

  absl::Status TakePiece(const v1::CarriedPage& piece);
  absl::Status TakePage(const PageName& name, Fingerprint fingerprint);
  absl::Status TakeSequence(const v1::CarriedSequence& carried);
  // Its ids, and what stands in the place of some.
  absl::Status TakeTokens(const v1::CarriedSequence& carried, Sequence* sequence) const;
  // `ends` are the fingerprints up to each token's end.
  absl::Status TakeTable(uint32_t group, const v1::CarriedTable& carried,
                         const std::vector<Fingerprint>& ends, PageTable* table) const;

  const StageSpec* const spec_;
  SequenceTable* const table_;
  KvPool* const pool_;
  Shard* const shard_;
  std::map<PageName, Page> pages_;  // Each holds its page once.
  // The page whose pieces come, and what is there of it.
  PageName at_hand_{};
  std::vector<uint8_t> bytes_;
  uint64_t taken_bytes_ = 0;
  uint64_t taken_sequences_ = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_KV_TAKER_H_
