// What the launches of a step are made of.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_STEP_SHAPE_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_STEP_SHAPE_H_

#include <cstdint>
#include <vector>

namespace strata::cuda {

struct StepCall {
  enum class Kind : uint8_t { kEmbed, kAttention, kMlp, kHead, kLogits, kLargest };
  Kind kind = Kind::kEmbed;
  uint32_t layer = 0;  // Of kAttention and kMlp.
  bool operator==(const StepCall&) const = default;
};

// All of a batch that arguments of launches are made of. What else differs from step to step lies
// on the device, always in the same place.
struct StepShape {
  std::vector<StepCall> calls;
  uint32_t rows = 0;
  uint32_t head_rows = 0;
  bool single_rows = true;
  uint32_t most_keys = 0;
};

// Whether the launches of both have the same arguments.
bool SameLaunches(const StepShape& a, const StepShape& b);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_STEP_SHAPE_H_
