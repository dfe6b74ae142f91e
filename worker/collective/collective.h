// What the ranks of a stage hand each other. A stage's outputs are split over its ranks, and what
// they computed is gathered: no sum is ever divided, so that the number of ranks changes no bit.
#ifndef STRATA_WORKER_COLLECTIVE_COLLECTIVE_H_
#define STRATA_WORKER_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace strata {

// Why a collective is of no use any more; it answers every later call with it. A new one is needed.
// All ranks were there, at different points or with different rows.
inline constexpr char kCollectiveDiffers[] = "COLLECTIVE_DIFFERS";
// A rank did not come in time.
inline constexpr char kCollectiveTimeout[] = "COLLECTIVE_TIMEOUT";
// A rank gave up.
inline constexpr char kCollectiveAborted[] = "COLLECTIVE_ABORTED";
// What a rank of another process sent is damaged.
inline constexpr char kRankFrame[] = "RANK_FRAME";
// The fact of such an error that says which rank is the cause, where that is known.
inline constexpr char kRankFact[] = "rank";

// Where in its work a rank is when it calls: the same for all ranks, or the call is refused.
struct CollectivePoint {
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t call = 0;  // Of the step.

  bool operator==(const CollectivePoint&) const = default;
};

// Bytes [begin, end) of a row.
struct ByteColumns {
  size_t begin = 0;
  size_t end = 0;

  size_t size() const { return end - begin; }
  bool operator==(const ByteColumns&) const = default;
};

// Rows of which each rank has written its own columns.
struct GatheredRows {
  uint8_t* data = nullptr;  // Row r begins at data + r * stride.
  size_t rows = 0;
  size_t stride = 0;  // Bytes; may differ from rank to rank.
  // By rank, ascending, without overlap, and the same on all ranks. A rank may have none.
  std::span<const ByteColumns> columns;
  // Only the first rank needs the others' columns; on the others they are undefined then. The same
  // on all ranks.
  bool to_first = false;
};

// One rank's end. All ranks make the same calls in the same order, each on one thread at a time;
// Abort comes from any thread. Every wait is bounded. After an error of any call all ranks hear
// one: COLLECTIVE_DIFFERS (INTERNAL), COLLECTIVE_TIMEOUT (DEADLINE_EXCEEDED), RANK_FRAME
// (DATA_LOSS) or COLLECTIVE_ABORTED (ABORTED). What was gathered then is undefined.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual uint32_t rank() const = 0;
  virtual uint32_t ranks() const = 0;

  // Fills in the other ranks' columns, in the order of ranks; with to_first on the first rank. What
  // `rows` points to stays valid, and this rank's own columns unchanged, until the next call has
  // returned, or else until all ranks' calls have.
  //
  // Rows in the memory of a device are filled in on its stream, behind what is there and before
  // what is put there next, which may write over what the rank gave. The call may return before.
  virtual absl::Status Gather(const CollectivePoint& point, const GatheredRows& rows) = 0;
  // Waits until all is done that is on the device's stream by now. Who waits for it in another way
  // waits without an end where another rank is gone. Where there is no device nothing is to be
  // done.
  virtual absl::Status Finish() { return absl::OkStatus(); }
  // Returns once all ranks are there.
  virtual absl::Status Barrier(const CollectivePoint& point) = 0;
  // Ends waits of all ranks, and every later call; the first `why` counts.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_COLLECTIVE_COLLECTIVE_H_
