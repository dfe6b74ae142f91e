// A leader's calls of its shard as it sends them to those who follow: a head of fixed size, then
// what the call is made with. Little-endian. Pure.
#ifndef STRATA_WORKER_RANKS_RANK_CALL_H_
#define STRATA_WORKER_RANKS_RANK_CALL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/stage.h"

namespace strata {

enum class RankCallKind : uint32_t {
  kBegin = 1,            // Rows, items, page tables; no token ids, which only the leader embeds.
  kShareResidual = 2,    // The residual stream := the leader's.
  kAttention = 3,        // Layer.
  kAttentionOfSome = 4,  // Layer, rows.
  kMlp = 5,              // Layer.
  kHead = 6,             // Rows.
  kReadLogits = 7,       // Behind it the leader gathers what each rank has of them.
  kCopyPage = 8,         // Group, page, the page that it goes to.
  kResizeKv = 9,         // Pages by group. Behind it, as behind the next two, is an answer.
  kReadPage = 10,        // Group, page.
  kWritePage = 11,       // Group, page, and the rank's bytes of it.
  kAlive = 12,           // Nothing: the leader is there.
  kEnd = 13,             // Of the epoch; why, as text.
};

inline constexpr size_t kRankCallHeadBytes = 48;
// Of what kEnd says.
inline constexpr size_t kMaxEndBytes = 1024;

// What no call of a stage's is larger than.
struct RankCallLimits {
  uint32_t rows = 0;         // Of a batch.
  uint32_t items = 0;        // Of a batch.
  uint32_t groups = 0;       // KV groups of the model; each item has a page table for each.
  uint32_t table_pages = 0;  // Of one page table.
  uint64_t page_bytes = 0;   // Of the rank's part of a page.
};
RankCallLimits LimitsOf(const StageSpec& spec, uint64_t page_bytes);

// Where a frame is: of another epoch, or not behind the one before, it is refused.
struct RankCallHead {
  RankCallKind kind = RankCallKind::kAlive;
  uint64_t epoch = 0;
  uint64_t number = 0;  // Of the epoch's frames, from 1.
  uint64_t bytes = 0;   // That follow.
  uint32_t crc = 0;     // CRC-32C of them.

  bool operator==(const RankCallHead&) const = default;
};

// What a call is made with; of its kind only what RankCallKind says.
struct RankCall {
  RankCallKind kind = RankCallKind::kAlive;
  Batch batch = {};  // Without token ids. As sent, tables end where their items do.
  uint32_t layer = 0;
  std::span<const uint32_t> rows = {};
  uint32_t group = 0;
  PageId page = 0;
  PageId to = 0;
  std::span<const uint64_t> kv_pages = {};
  std::span<const uint8_t> page_bytes = {};
  std::string why = {};  // Cut to kMaxEndBytes.
};

// `out` := the frame, head and all.
void EncodeRankCall(const RankCall& call, uint64_t epoch, uint64_t number,
                    std::vector<uint8_t>* out);

// DATA_LOSS (kRankFrame): no head of this version, damaged, of an unknown kind, or with more bytes
// than its kind may have of such a stage.
absl::StatusOr<RankCallHead> DecodeRankCallHead(std::span<const uint8_t, kRankCallHeadBytes> bytes,
                                                const RankCallLimits& limits);

// A call as it came, and what it points to.
class HeldRankCall {
 public:
  // What comes behind `head`, and is as long as it says. DATA_LOSS (kRankFrame): damaged, or not
  // what a call of the kind is made with. The batch stays until the next kBegin is decoded, all
  // else until the next call is.
  absl::Status Decode(const RankCallHead& head, std::span<const uint8_t> bytes,
                      const RankCallLimits& limits);
  const RankCall& call() const { return call_; }

 private:
  absl::Status DecodeBatch(std::span<const uint8_t> bytes, const RankCallLimits& limits);

  RankCall call_;
  std::vector<BatchItem> items_;
  std::vector<PageTableView> tables_;
  std::vector<PageId> pages_;
  std::vector<uint32_t> rows_;
  std::vector<uint64_t> kv_pages_;
  std::vector<uint8_t> page_bytes_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_RANK_CALL_H_
