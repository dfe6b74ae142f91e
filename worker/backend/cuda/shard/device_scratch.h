// What the steps of a stage keep on the device between their launches.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_SCRATCH_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_SCRATCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/footprint/device_limits.h"
#include "common/model/row_widths.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/stage.h"

namespace strata::cuda {

// Floats of a row of each buffer; 0: no layer needs it.
struct RowSizes : RowWidths {
  RowSizes() = default;
  // `attended`: the widest row that leaves attention, where the spec's heads are not all that there
  // are.
  explicit RowSizes(const StageSpec& spec, size_t attended = 0);
  size_t within = 0;        // RowWidths::Within.
  size_t quant_inputs = 0;  // Quantized inputs of a row, of all its experts.
  size_t partial = 0;       // Of a query: all its spans.
  size_t attended = 0;      // What leaves attention, of the heads of all ranks.
};

class DeviceScratch {
 public:
  // `vocab`: of a row of logits, as many as the rank computes; `attended` as RowSizes has it.
  absl::Status Allocate(Device* device, const StageSpec& spec, uint32_t vocab, size_t attended);
  uint64_t bytes() const;
  const RowSizes& sizes() const { return sizes_; }

  float* residual() const { return residual_.as<float>(); }
  float* normed() const { return normed_.as<float>(); }
  float* branch() const { return branch_.as<float>(); }
  float* q() const { return q_.as<float>(); }
  float* k() const { return k_.as<float>(); }
  float* v() const { return v_.as<float>(); }
  float* attended() const { return attended_.as<float>(); }
  float* query_latent() const { return query_latent_.as<float>(); }
  float* absorbed() const { return absorbed_.as<float>(); }
  float* summed() const { return summed_.as<float>(); }
  float* gate() const { return gate_.as<float>(); }
  float* up() const { return up_.as<float>(); }
  float* router() const { return router_.as<float>(); }
  float* router_keys() const { return router_keys_.as<float>(); }
  float* expert_out() const { return expert_out_.as<float>(); }
  float* partial() const { return partial_.as<float>(); }
  float* head() const { return head_.as<float>(); }
  float* logits() const { return logits_.as<float>(); }
  RowChoice* choices() const { return choices_.as<RowChoice>(); }  // Of all rows.
  uint32_t* chosen() const { return chosen_.as<uint32_t>(); }
  float* weights() const { return weights_.as<float>(); }
  uint32_t* places() const { return places_.as<uint32_t>(); }
  uint32_t* row_at() const { return row_at_.as<uint32_t>(); }
  uint32_t* counts() const { return counts_.as<uint32_t>(); }
  ExpertGroup* groups() const { return groups_.as<ExpertGroup>(); }
  // Of rows of so many inputs.
  QuantizedRows quantized(uint32_t inputs) const;

 private:
  RowSizes sizes_;
  size_t quant_blocks_ = 0;  // Of all rows.
  DeviceBuffer residual_, normed_, branch_, q_, k_, v_, attended_, query_latent_, absorbed_,
      summed_, gate_, up_, router_, router_keys_, expert_out_, partial_, head_, logits_, choices_,
      chosen_, weights_, places_, row_at_, counts_, groups_, quantized_, quant_numbers_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_DEVICE_SCRATCH_H_
