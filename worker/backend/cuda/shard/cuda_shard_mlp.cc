// The MLP branch of a loaded stage on a device, dense or a mixture of experts.
#include <algorithm>

#include "common/status.h"
#include "worker/backend/cuda/shard/cuda_shard.h"

namespace strata::cuda {

absl::Status CudaShard::Mlp(uint32_t layer) {
  RETURN_IF_ERROR(calls_.Layer(layer));
  return batch_.rows() == 0 ? absl::OkStatus()
                            : launches_.Add({.kind = StepCall::Kind::kMlp, .layer = layer});
}

absl::Status CudaShard::LaunchMlp(uint32_t layer) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const DeviceLayer& weights = WeightsOf(layer);
  if (spec.mlp.experts != 0) {
    return MixtureMlp(layer);
  }
  const RowInputs inputs = branch_.Begin(spec, weights.mlp_norm, {&weights.gate, &weights.up});
  RETURN_IF_ERROR(GatedProducts(spec.mlp, weights, inputs, link_.ffn(layer)));
  const RowInputs gated =
      products_.Prepare(scratch_.gate(), scratch_.sizes().within, batch_.rows(), {&weights.down});
  return branch_.Finish(gated, weights.down, spec, weights.after_mlp_norm);
}

void CudaShard::GateRows(const MlpSpec& mlp, uint32_t rows, size_t stride, OutputRange columns) {
  const Gating gating = mlp.activation == ActivationKind::kSilu       ? Gating::kSilu
                        : mlp.activation == ActivationKind::kGeluTanh ? Gating::kGelu
                                                                      : Gating::kClampedSilu;
  Gate(stream_, gating, mlp.clamp, mlp.gain, scratch_.gate() + columns.begin,
       scratch_.up() + columns.begin, rows, stride, columns.size());
}

absl::Status CudaShard::GatedProducts(const MlpSpec& mlp, const DeviceLayer& weights,
                                      const RowInputs& inputs, const RankColumns& columns) {
  const size_t stride = scratch_.sizes().within;
  if (const OutputRange own = link_.own(columns); !own.empty()) {
    products_.Multiply(weights.gate, inputs, scratch_.gate() + own.begin, stride);
    products_.Multiply(weights.up, inputs, scratch_.up() + own.begin, stride);
    GateRows(mlp, batch_.rows(), stride, own);
  }
  return link_.Gather(scratch_.gate(), batch_.rows(), stride, columns);
}

absl::Status CudaShard::MixtureMlp(uint32_t layer) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const DeviceLayer& weights = WeightsOf(layer);
  const MlpSpec& mlp = spec.mlp;
  const RouterSpec& router = mlp.router;
  const RowSizes& sizes = scratch_.sizes();
  const uint32_t rows = batch_.rows();
  const Matrix& gate = weights.expert_gate.first;
  const Matrix& up = weights.expert_up.first;
  const RowInputs normed = branch_.Begin(spec, weights.mlp_norm, {&weights.router, &gate, &up});
  products_.Multiply(weights.router, normed, scratch_.router(), sizes.experts);
  Route(stream_, {.logits = scratch_.router(),
                  .scratch = scratch_.router_keys(),
                  .stride = sizes.experts,
                  .rows = rows,
                  .experts = mlp.experts,
                  .used = router.used,
                  .sigmoid = router.scores == RouterScores::kSigmoid,
                  .softmax = router.scores == RouterScores::kSoftmax,
                  .softmax_of_chosen = router.scores == RouterScores::kSoftmaxOfChosen,
                  .renormalize = router.renormalize,
                  .corrections = router.corrected ? weights.corrections.data : nullptr,
                  .groups = router.groups,
                  .groups_used = router.groups_used,
                  .group_best = router.group_best,
                  .scale = router.scale,
                  .chosen = scratch_.chosen(),
                  .weights = scratch_.weights()});
  RETURN_IF_ERROR(MultiplyByExperts(layer, normed));
  const OutputRange own = link_.own(link_.hidden());
  if (mlp.shared_ffn != 0) {
    const RowInputs inputs =
        products_.Prepare(normed.x, normed.stride, rows, {&weights.gate, &weights.up});
    RETURN_IF_ERROR(GatedProducts(mlp, weights, inputs, link_.shared_ffn(layer)));
    if (!own.empty()) {
      const RowInputs gated =
          products_.Prepare(scratch_.gate(), sizes.within, rows, {&weights.down});
      products_.Multiply(weights.down, gated, scratch_.branch() + own.begin, sizes.hidden);
    }
  }
  if (!own.empty()) {
    AddExperts(stream_, scratch_.expert_out() + own.begin, sizes.hidden, scratch_.places(),
               scratch_.weights(), router.used, rows, own.size(), mlp.shared_ffn == 0,
               scratch_.branch() + own.begin, sizes.hidden);
  }
  return branch_.Add(spec, weights.after_mlp_norm);
}

absl::Status CudaShard::MultiplyByExperts(uint32_t layer, const RowInputs& normed) {
  const MlpSpec& mlp = spec_.model.layers[layer].mlp;
  const DeviceLayer& weights = WeightsOf(layer);
  const uint32_t places = batch_.rows() * mlp.router.used;
  const uint32_t groups = std::min(places, mlp.experts);
  Arrange(stream_, {.chosen = scratch_.chosen(),
                    .rows = batch_.rows(),
                    .used = mlp.router.used,
                    .experts = mlp.experts,
                    .counts = scratch_.counts(),
                    .groups = scratch_.groups(),
                    .most_groups = groups,
                    .row_at = scratch_.row_at(),
                    .places = scratch_.places()});
  const size_t stride = (size_t{mlp.ffn} + kLanes - 1) / kLanes * kLanes;
  const auto multiply = [&](const DeviceMatrices& matrices, const RowInputs& inputs, bool by_place,
                            float* out, size_t out_stride) {
    Product product = RowProducts::Of(matrices.first, inputs, out, out_stride);
    product.rows = batch_.rows();
    product.matrices = matrices.all;
    product.parts = groups;
    product.groups = scratch_.groups();
    product.row_at = by_place ? nullptr : scratch_.row_at();
    products_.Multiply(product);
  };
  if (const OutputRange own = link_.own(link_.ffn(layer)); !own.empty()) {
    multiply(weights.expert_gate, normed, false, scratch_.gate() + own.begin, stride);
    multiply(weights.expert_up, normed, false, scratch_.up() + own.begin, stride);
    GateRows(mlp, places, stride, own);
  }
  RETURN_IF_ERROR(link_.Gather(scratch_.gate(), places, stride, link_.ffn(layer)));
  if (const OutputRange own = link_.own(link_.hidden()); !own.empty()) {
    const RowInputs gated =
        products_.Prepare(scratch_.gate(), stride, places, {&weights.expert_down.first});
    multiply(weights.expert_down, gated, true, scratch_.expert_out() + own.begin,
             scratch_.sizes().hidden);
  }
  return absl::OkStatus();
}

}  // namespace strata::cuda
