// The MLP branch of a loaded stage, where it is dense; cpu_shard_experts.cc has mixtures.
#include <algorithm>
#include <array>

#include "worker/backend/cpu/shard/cpu_shard.h"

namespace strata::cpu {

absl::Status CpuShard::Mlp(uint32_t layer) {
  RETURN_IF_ERROR(CheckLayer(layer));
  const LayerSpec& spec = spec_.model.layers[layer];
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  if (spec.mlp.experts != 0) {
    MixtureMlp(spec, weights);
  } else {
    DenseMlp(spec, weights);
  }
  return absl::OkStatus();
}

void CpuShard::Activate(const MlpSpec& mlp, float* gate, const float* up, size_t count) const {
  switch (mlp.activation) {
    case ActivationKind::kSilu:
      return kernels_->swiglu(gate, up, count, gate);
    case ActivationKind::kGeluTanh:
      return kernels_->geglu(gate, up, count, gate);
    case ActivationKind::kClampedSilu:
      return kernels_->clamped_swiglu(gate, up, count, mlp.clamp, mlp.gain, gate);
  }
}

void CpuShard::DenseMlp(const LayerSpec& spec, const LayerWeights& weights) {
  const Inputs down =
      MultiplyGated(BranchInputs(spec, weights.mlp_norm, {&weights.gate, &weights.up}), spec.mlp,
                    weights, spec.mlp.ffn);
  FinishBranch(down, weights.down, spec, weights.after_mlp_norm);
}

void CpuShard::QuantizeGated(const Inputs& down, size_t first, size_t end) {
  constexpr size_t kPanels = kQuantBlock / kLanes;  // Of a block.
  static_assert(kPanels == 2);
  const auto quantize = [&](size_t begin_block, size_t end_block) {
    kernels_->quantize_part(down.x, down.stride, batch_.rows, down.inputs, begin_block, end_block,
                            down.quantized);
  };
  const auto meet = [&](size_t block) {
    if (halves_[block].fetch_add(1, std::memory_order_acq_rel) == 1) {
      halves_[block].store(0, std::memory_order_relaxed);
      quantize(block, block + 1);
    }
  };
  const bool last = end * kLanes >= down.inputs;
  const size_t begin_block = (first + 1) / kPanels;
  const size_t end_block = (end + last) / kPanels;
  if (begin_block < end_block) {
    quantize(begin_block, end_block);
  }
  if (first % kPanels != 0) {
    meet(first / kPanels);
  }
  if (end % kPanels != 0 && !last) {
    meet(end / kPanels);
  }
}

CpuShard::Inputs CpuShard::MultiplyGated(const Inputs& inputs, const MlpSpec& mlp,
                                         const LayerWeights& weights, uint32_t ffn) {
  const uint32_t rows = batch_.rows;
  const size_t stride = sizes_.ffn;
  const std::array<MatmulArgs, 2> products = {
      Product(weights.gate, rows, gate_.as<float>(), stride, false),
      Product(weights.up, rows, up_.as<float>(), stride, false)};
  Inputs down = Rows(gate_.as<float>(), stride, ffn, {&weights.down});
  down.quantized = down.int8 && OneBlock() ? gated_.as() : nullptr;
  const size_t panels = weights.gate.weight.view().panels();
  const size_t at_once = PanelsAtOnce(rows);
  PackForAll(inputs);
  const auto body = [&](uint32_t thread, ThreadPool::Pieces pieces) {
    const PackedRows packed = PackOwn(inputs, thread);
    // What is computed and not quantized yet: sixteen blocks take no longer than one.
    ThreadPool::Piece computed;
    const auto quantize = [&] {
      if (down.quantized != nullptr && !computed.empty()) {
        QuantizeGated(down, computed.begin, computed.end);
      }
    };
    for (auto piece = pieces.Next(); !piece.empty(); piece = pieces.Next()) {
      const size_t begin = piece.begin * at_once;
      const size_t end = std::min(piece.end * at_once, panels);
      for (const MatmulArgs& product : products) {
        kernels_->matmul(WithRows(product, packed), begin, end);
      }
      const size_t first = begin * kLanes;
      const size_t count = std::min<size_t>(end * kLanes, ffn) - first;
      for (uint32_t row = 0; row < rows; ++row) {
        const size_t at = row * stride + first;
        Activate(mlp, gate_.as<float>() + at, up_.as<float>() + at, count);
      }
      if (begin == computed.end) {
        computed.end = end;
      } else {
        quantize();
        computed = {begin, end};
      }
    }
    quantize();
  };
  pool_->Share((panels + at_once - 1) / at_once, body);
  return down;
}

}  // namespace strata::cpu
