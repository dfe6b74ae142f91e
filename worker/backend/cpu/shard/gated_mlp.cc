#include "worker/backend/cpu/shard/gated_mlp.h"

#include <algorithm>
#include <array>

namespace strata::cpu {

absl::Status GatedMlp::Allocate() {
  const ScratchSizes& sizes = stage_.sizes;
  if (sizes.gated > 0) {
    RETURN_IF_ERROR(gated_.Allocate(sizes.gated_rows * sizes.gated, "buffers"));
    halves_ = std::vector<std::atomic<uint8_t>>(sizes.ffn / kQuantBlock + 1);
  }
  RETURN_IF_ERROR(gate_.Allocate(sizes.rows * sizes.within * sizeof(float), "buffers"));
  return up_.Allocate(sizes.rows * sizes.within * sizeof(float), "buffers");
}

void GatedMlp::Activate(const MlpSpec& mlp, float* gate, const float* up, size_t count) const {
  switch (mlp.activation) {
    case ActivationKind::kSilu:
      return stage_.kernels->swiglu(gate, up, count, gate);
    case ActivationKind::kGeluTanh:
      return stage_.kernels->geglu(gate, up, count, gate);
    case ActivationKind::kClampedSilu:
      return stage_.kernels->clamped_swiglu(gate, up, count, mlp.clamp, mlp.gain, gate);
  }
}

absl::Status GatedMlp::Compute(uint32_t layer) {
  const LayerSpec& spec = stage_.layer(layer);
  const LayerWeights& weights = stage_.layer_weights(layer);
  ASSIGN_OR_RETURN(
      const Products::Inputs down,
      MultiplyGated(residual_.BranchInputs(spec, weights.mlp_norm, {&weights.gate, &weights.up}),
                    spec.mlp, weights, stage_.link->ffn(layer)));
  return residual_.FinishBranch(down, weights.down, spec, weights.after_mlp_norm);
}

void GatedMlp::QuantizeGated(const Products::Inputs& down, size_t first, size_t end) {
  constexpr size_t kPanels = kQuantBlock / kLanes;  // Of a block.
  static_assert(kPanels == 2);
  const auto quantize = [&](size_t begin_block, size_t end_block) {
    stage_.kernels->quantize_part(down.x, down.stride, stage_.batch.rows, down.inputs, begin_block,
                                  end_block, down.quantized);
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

absl::StatusOr<Products::Inputs> GatedMlp::MultiplyGated(const Products::Inputs& inputs,
                                                         const MlpSpec& mlp,
                                                         const LayerWeights& weights,
                                                         const RankColumns& ffn) {
  const uint32_t rows = stage_.batch.rows;
  const size_t stride = stage_.sizes.ffn;
  const OutputRange own = stage_.link->own(ffn);
  const std::array<MatmulArgs, 2> products = {
      products_.Product(weights.gate, rows, gate_.as<float>() + own.begin, stride, false),
      products_.Product(weights.up, rows, up_.as<float>() + own.begin, stride, false)};
  Products::Inputs down =
      products_.Rows(gate_.as<float>(), stride, RankLink::Width(ffn), {&weights.down});
  // What other ranks computed is quantized when it is there.
  const bool at_once = stage_.link->alone() && down.int8 && products_.OneBlock();
  down.quantized = at_once ? gated_.as() : nullptr;
  const size_t panels = weights.gate.weight.view().panels();
  const size_t panels_at_once = products_.PanelsAtOnce(rows);
  if (panels > 0) {
    products_.PackForAll(inputs);
  }
  const auto body = [&](uint32_t thread, ThreadPool::Pieces pieces) {
    const Products::PackedRows packed = products_.PackOwn(inputs, thread);
    // What is computed and not quantized yet: sixteen blocks take no longer than one.
    ThreadPool::Piece computed;
    const auto quantize = [&] {
      if (down.quantized != nullptr && !computed.empty()) {
        QuantizeGated(down, computed.begin, computed.end);
      }
    };
    for (auto piece = pieces.Next(); !piece.empty(); piece = pieces.Next()) {
      const size_t begin = piece.begin * panels_at_once;
      const size_t end = std::min(piece.end * panels_at_once, panels);
      for (const MatmulArgs& product : products) {
        stage_.kernels->matmul(Products::WithRows(product, packed), begin, end);
      }
      const size_t first = begin * kLanes;
      const size_t count = std::min<size_t>(end * kLanes, own.size()) - first;
      for (uint32_t row = 0; row < rows; ++row) {
        const size_t at = row * stride + own.begin + first;
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
  stage_.pool->Share((panels + panels_at_once - 1) / panels_at_once, body);
  RETURN_IF_ERROR(stage_.link->Gather(gate_.as<float>(), rows, stride, ffn));
  return down;
}

}  // namespace strata::cpu
