// What a stage's layers turn by.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ROTARY_TABLES_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ROTARY_TABLES_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/stage.h"

namespace strata::cpu {

// A copy of StageSpec::rotary (see RopesOf), and where each layer's part begins.
class RotaryTables {
 public:
  explicit RotaryTables(const StageSpec& spec) {
    for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
      std::array<size_t, 2>& at = at_.emplace_back();
      for (uint32_t variant = 0; variant < at.size(); ++variant) {
        at[variant] = RotaryOffset(spec.model, layer, variant, spec.context);
      }
    }
  }
  // Once.
  absl::Status Allocate(const StageSpec& spec) {
    RETURN_IF_ERROR(tables_.Allocate(spec.rotary.size_bytes(), "buffers"));
    if (!spec.rotary.empty()) {  // No layer turns anything.
      std::memcpy(tables_.as(), spec.rotary.data(), spec.rotary.size_bytes());
    }
    return absl::OkStatus();
  }
  // The cosines that a layer, counted from the stage's first, turns `half` pairs by at a position.
  // The sines are context * half behind them.
  const float* Cosines(uint32_t local, uint32_t variant, uint32_t position, uint32_t half) const {
    return tables_.as<float>() + at_[local][variant] + size_t{position} * half;
  }
  uint64_t bytes() const { return tables_.bytes(); }

 private:
  std::vector<std::array<size_t, 2>> at_;  // By layer of the stage and variant, floats.
  AlignedBuffer tables_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ROTARY_TABLES_H_
