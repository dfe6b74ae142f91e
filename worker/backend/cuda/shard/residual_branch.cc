#include "worker/backend/cuda/shard/residual_branch.h"

#include "common/status.h"

namespace strata::cuda {

RowInputs ResidualBranch::Begin(const LayerSpec& spec, const DeviceVector& before,
                                RowProducts::Users users) const {
  const float* x = scratch_.residual();
  if (!before.empty()) {
    Norm(before, spec, x, scratch_.normed());
    x = scratch_.normed();
  }
  return products_.Prepare(x, scratch_.sizes().hidden, batch_.rows(), users);
}

absl::Status ResidualBranch::Finish(const RowInputs& inputs, const Matrix& matrix,
                                    const LayerSpec& spec, const DeviceVector& after) const {
  const size_t stride = scratch_.sizes().hidden;
  const bool direct = after.empty() && spec.branch_scale == 1;
  float* const to = direct ? scratch_.residual() : scratch_.branch();
  if (const OutputRange own = link_.own(link_.hidden()); !own.empty()) {
    Product product = RowProducts::Of(matrix, inputs, to + own.begin, stride);
    product.add = direct;
    products_.Multiply(product);
  }
  return direct ? link_.Gather(to, batch_.rows(), stride, link_.hidden()) : Add(spec, after);
}

absl::Status ResidualBranch::Add(const LayerSpec& spec, const DeviceVector& after) const {
  const size_t stride = scratch_.sizes().hidden;
  RETURN_IF_ERROR(link_.Gather(scratch_.branch(), batch_.rows(), stride, link_.hidden()));
  if (!after.empty()) {
    Norm(after, spec, scratch_.branch(), scratch_.branch());
  }
  AddRows(stream_, scratch_.branch(), stride, spec.branch_scale, scratch_.residual(), stride,
          batch_.rows(), hidden_);
  return absl::OkStatus();
}

void ResidualBranch::Norm(const DeviceVector& weight, const LayerSpec& spec, const float* x,
                          float* out) const {
  const size_t stride = scratch_.sizes().hidden;
  NormRows(stream_, {.x = x,
                     .x_stride = stride,
                     .rows = batch_.rows(),
                     .width = weight.width,
                     .weight = weight.data,
                     .eps = spec.norm_eps,
                     .plus = PlusOf(spec.norm),
                     .out = out,
                     .out_stride = stride});
}

}  // namespace strata::cuda
