// A frame: what travels on a link for one step. Header and payload are one here; on the wire they
// are cut into parts of <= kFramePartBytes, each with the CRC-32C of the whole.
#ifndef STRATA_COMMON_FRAME_H_
#define STRATA_COMMON_FRAME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/limits.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// To a stage: `payload` holds float32 activations [rows, hidden]; empty for the first stage.
struct StepMessage {
  v1::StepFrame header;
  std::vector<float> payload;
  uint64_t received_bytes = 0;  // Of the frame, as it came over a link; 0: over none.
};

// From the last stage: `payload` holds the wanted logits rows.
struct ResultMessage {
  v1::StepResult header;
  std::vector<float> payload;
  uint64_t received_bytes = 0;  // As StepMessage's.
};

// Cuts a message into parts.
std::vector<v1::FramePart> ToParts(const StepMessage& message);
std::vector<v1::FramePart> ToParts(const ResultMessage& message);

// Puts parts together again, in order, for one link. Checks sizes against the limits before it
// allocates, that parts are consecutive and of one frame, and the CRC. One thread.
class FrameAssembler {
 public:
  explicit FrameAssembler(size_t max_bytes = kMaxFrameBytes) : max_bytes_(max_bytes) {}

  // Takes the next part. True when a frame is whole; then call exactly one of Take...().
  // DATA_LOSS (bad CRC) or INVALID_ARGUMENT (bad part) break the link.
  absl::StatusOr<bool> Add(const v1::FramePart& part);

  absl::StatusOr<StepMessage> TakeStep();
  absl::StatusOr<ResultMessage> TakeResult();

 private:
  template <typename Message>
  absl::StatusOr<Message> Take();

  const size_t max_bytes_;
  std::string data_;
  v1::FramePart first_;  // Without its data.
  uint32_t next_index_ = 0;
};

}  // namespace strata

#endif  // STRATA_COMMON_FRAME_H_
