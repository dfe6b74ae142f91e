#include "worker/backend/cuda/shard/device_scratch.h"

#include <algorithm>

#include "common/status.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cuda {

RowSizes::RowSizes(const StageSpec& spec, size_t attended)
    : RowWidths(spec.model, spec.first_layer, spec.last_layer),
      within(Within()),
      attended(std::max(queries, cpu::RoundUp(attended, kRowFloats))) {
  static_assert(kRowFloats % kLanes == 0, "a row is whole panels");
  const auto quantizes = [&](size_t inputs, size_t times) {
    quant_inputs = std::max(quant_inputs, times * cpu::RoundUp(inputs, cpu::kQuantBlock));
  };
  quantizes(spec.model.hidden, 1);
  quantizes(attended, 1);
  for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
    const AttentionSpec& attention = spec.model.layers[i].attention;
    const MlpSpec& mlp = spec.model.layers[i].mlp;
    const uint32_t rank = attention.latent.rank;
    quantizes(AttentionInputs(attention), 1);
    partial = std::max(partial, cpu::SpansOf(spec.context) *
                                    cpu::PartialFloats(rank != 0 ? rank : attention.head_dim));
    quantizes(DenseWidth(mlp), 1);
    if (mlp.experts != 0) {
      quantizes(mlp.ffn, mlp.router.used);
    }
  }
}

absl::Status DeviceScratch::Allocate(Device* device, const StageSpec& spec, uint32_t vocab,
                                     size_t attended) {
  sizes_ = RowSizes(spec, attended);
  const size_t rows = spec.max_batch_tokens;
  const auto floats = [&](DeviceBuffer* buffer, size_t count) {
    return buffer->Allocate(device, count * sizeof(float), "buffers");
  };
  RETURN_IF_ERROR(floats(&residual_, rows * sizes_.hidden));
  RETURN_IF_ERROR(floats(&normed_, rows * sizes_.hidden));
  RETURN_IF_ERROR(floats(&branch_, rows * sizes_.hidden));
  RETURN_IF_ERROR(floats(&q_, rows * sizes_.queries));
  RETURN_IF_ERROR(floats(&k_, rows * sizes_.keys));
  RETURN_IF_ERROR(floats(&v_, rows * sizes_.values));
  RETURN_IF_ERROR(floats(&attended_, rows * sizes_.attended));
  RETURN_IF_ERROR(floats(&query_latent_, rows * sizes_.query_rank));
  RETURN_IF_ERROR(floats(&absorbed_, rows * sizes_.absorbed));
  RETURN_IF_ERROR(floats(&summed_, rows * sizes_.summed));
  RETURN_IF_ERROR(floats(&gate_, rows * sizes_.within));
  RETURN_IF_ERROR(floats(&up_, rows * sizes_.within));
  RETURN_IF_ERROR(floats(&router_, rows * sizes_.experts));
  RETURN_IF_ERROR(floats(&router_keys_, rows * sizes_.experts));
  RETURN_IF_ERROR(floats(&expert_out_, rows * sizes_.used * sizes_.hidden));
  RETURN_IF_ERROR(floats(&partial_, kDeviceQueriesBySpans * sizes_.partial));
  RETURN_IF_ERROR(floats(&chosen_, rows * sizes_.used));
  RETURN_IF_ERROR(floats(&weights_, rows * sizes_.used));
  RETURN_IF_ERROR(floats(&places_, rows * sizes_.used));
  RETURN_IF_ERROR(floats(&row_at_, rows * sizes_.used));
  RETURN_IF_ERROR(floats(&counts_, sizes_.experts));
  RETURN_IF_ERROR(groups_.Allocate(device, rows * sizes_.used * sizeof(ExpertGroup), "buffers"));
  if (spec.heads) {
    RETURN_IF_ERROR(floats(&head_, rows * sizes_.hidden));
    RETURN_IF_ERROR(floats(&logits_, std::min<size_t>(rows, kDeviceLogitRows) * size_t{vocab}));
    RETURN_IF_ERROR(choices_.Allocate(device, rows * sizeof(RowChoice), "buffers"));
  }
  if (spec.activations == v1::ACTIVATIONS_INT8) {
    quant_blocks_ = rows * sizes_.quant_inputs / cpu::kQuantBlock;
    RETURN_IF_ERROR(quantized_.Allocate(device, quant_blocks_ * cpu::kQuantBlock, "buffers"));
    RETURN_IF_ERROR(floats(&quant_numbers_, 4 * quant_blocks_));
  }
  return absl::OkStatus();
}

QuantizedRows DeviceScratch::quantized(uint32_t inputs) const {
  float* const numbers = quant_numbers_.as<float>();
  int32_t* const integers = reinterpret_cast<int32_t*>(numbers + 2 * quant_blocks_);
  return {.values = quantized_.as<int8_t>(),
          .scales = numbers,
          .scaled_sums = numbers + quant_blocks_,
          .sums = integers,
          .half_sums = integers + quant_blocks_,
          .blocks = QuantBlocks(inputs)};
}

uint64_t DeviceScratch::bytes() const {
  uint64_t bytes = 0;
  for (const DeviceBuffer* buffer :
       {&residual_, &normed_,       &branch_,       &q_,       &k_,      &v_,
        &attended_, &query_latent_, &absorbed_,     &summed_,  &gate_,   &up_,
        &router_,   &router_keys_,  &expert_out_,   &partial_, &head_,   &logits_,
        &choices_,  &chosen_,       &weights_,      &places_,  &row_at_, &counts_,
        &groups_,   &quantized_,    &quant_numbers_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

}  // namespace strata::cuda
