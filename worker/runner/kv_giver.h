// What a stage gives away of its KV to the one that is to take its place: docs/internals/kv.md,
// "KV that moves".
#ifndef STRATA_WORKER_RUNNER_KV_GIVER_H_
#define STRATA_WORKER_RUNNER_KV_GIVER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fingerprint.h"
#include "strata/v1/kv.pb.h"
#include "worker/backend/shard.h"
#include "worker/runner/page_layers.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// Of some layers of the stage, to one that has these. It remembers which page it gave with which
// fingerprint, which says all that is in a full page. So a later round has what is new alone. One
// thread at a time, between steps.
class KvGiver {
 public:
  using Parts = std::vector<v1::CarryKvPart>;

  // `parts`: where these layers lie in the pages of each KV group. Both others outlive it.
  KvGiver(const LayerRange& layers, std::vector<PagePart> parts, const SequenceTable* table,
          Shard* shard)
      : layers_(layers), page_parts_(std::move(parts)), table_(table), shard_(shard) {}

  // A round begins. At the first one, 0, it forgets what it gave.
  void Begin(uint32_t round);
  // The next full pages, of kGivenAtOnceBytes or one; none: the round is over.
  absl::StatusOr<Parts> More();
  // All pages that are left, and, unless that is `pages_only`, the sequences. Not among them are
  // those that lead beyond kMostLeftBytes or kMostSequenceBytes, or whose last page others begin on
  // too: they are computed again.
  absl::StatusOr<Parts> Rest(bool pages_only);

 private:
  // Adds the page in pieces, unless it was given so before. The bytes that it has.
  absl::StatusOr<uint64_t> Give(uint32_t group, PageId page, Fingerprint fingerprint, Parts* parts);
  // Of the first `length` tokens.
  absl::StatusOr<uint64_t> GivePages(const Sequence& sequence, uint32_t length, uint64_t most,
                                     Parts* parts);
  bool SharesLastPage(const Sequence& sequence, uint32_t length) const;

  const LayerRange layers_;
  const std::vector<PagePart> page_parts_;
  const SequenceTable* const table_;
  Shard* const shard_;
  std::map<std::pair<uint32_t, PageId>, Fingerprint> given_;  // By group and page.
  uint64_t room_ = 0;                                         // In the newest part.
  std::optional<SequenceTable::Key> done_;  // The round is through with it, and all before.
};

// Stages, by their layers, that one gives KV to at the same time.
inline constexpr size_t kMostTakers = 64;
// Pages that are copied while the next step waits.
inline constexpr uint64_t kGivenAtOnceBytes = uint64_t{256} << 10;
// Pages that requests wait for.
inline constexpr uint64_t kMostLeftBytes = uint64_t{64} << 20;
// Of a sequence's description, so that it has room in a message.
inline constexpr uint64_t kMostSequenceBytes = uint64_t{3} << 20;

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_KV_GIVER_H_
