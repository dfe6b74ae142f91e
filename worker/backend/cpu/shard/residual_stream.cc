#include "worker/backend/cpu/shard/residual_stream.h"

#include <algorithm>
#include <array>

namespace strata::cpu {

absl::Status ResidualStream::Allocate() {
  const ScratchSizes& sizes = stage_.sizes;
  RETURN_IF_ERROR(rows_.Allocate(sizes.rows * sizes.hidden * sizeof(float), "buffers"));
  return branch_.Allocate(sizes.rows * sizes.branch * sizeof(float), "buffers");
}

void ResidualStream::Embed() {
  stage_.pool->Split(
      stage_.batch.rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          float* const to = this->row(row);
          if (!stage_.weights.embedding.empty()) {
            stage_.weights.embedding.ReadRow(*stage_.kernels, stage_.batch.token_ids[row], to);
          } else if (stage_.weights.embedding_panels.bytes() != 0) {
            stage_.weights.embedding_panels.ReadOutput(stage_.batch.token_ids[row], to);
          } else {
            stage_.weights.head.weight.ReadOutput(stage_.batch.token_ids[row], to);
          }
          if (const float scale = stage_.spec.model.embedding_scale; scale != 1) {
            std::for_each(to, to + stage_.spec.model.hidden, [scale](float& x) { x *= scale; });
          }
        }
      },
      kSmallRows);
}

void ResidualStream::Keep(std::span<const uint32_t> rows) {
  KeepRowsOf(&rows_, stage_.sizes.hidden, rows);
}

Products::Inputs ResidualStream::BranchInputs(const LayerSpec& spec,
                                              const std::vector<float>& before,
                                              Products::Users users) const {
  const Products::Inputs inputs =
      products_.Rows(rows_.as<float>(), stage_.sizes.hidden, stage_.spec.model.hidden, users);
  return before.empty() ? inputs : Products::Normed(inputs, before, spec.norm, spec.norm_eps);
}

absl::Status ResidualStream::FinishBranch(const Products::Inputs& inputs, const Linear& linear,
                                          const LayerSpec& spec, const std::vector<float>& after) {
  const uint32_t rows = stage_.batch.rows;
  const bool direct = after.empty() && spec.branch_scale == 1;
  const RankColumns& columns = stage_.link->hidden();
  const OutputRange own = stage_.link->own(columns);
  float* const to = direct ? rows_.as<float>() : branch_.as<float>();
  const size_t stride = direct ? stage_.sizes.hidden : stage_.sizes.branch;
  if (!own.empty()) {
    const std::array<MatmulArgs, 1> product = {
        products_.Product(linear, rows, to + own.begin, stride, /*add=*/direct)};
    products_.Multiply(inputs, product);
  }
  return direct ? stage_.link->Gather(to, rows, stride, columns) : GatherBranch(spec, after);
}

absl::Status ResidualStream::GatherBranch(const LayerSpec& spec, const std::vector<float>& after) {
  RETURN_IF_ERROR(stage_.link->Gather(branch_.as<float>(), stage_.batch.rows, stage_.sizes.branch,
                                      stage_.link->hidden()));
  AddBranch(spec, after);
  return absl::OkStatus();
}

void ResidualStream::AddBranch(const LayerSpec& spec, const std::vector<float>& after) {
  stage_.pool->Split(
      stage_.batch.rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          AddBranchRow(spec, after, row);
        }
      },
      kSmallRows);
}

void ResidualStream::AddBranchRow(const LayerSpec& spec, const std::vector<float>& after,
                                  size_t row) {
  const float plus = spec.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
  const size_t hidden = stage_.spec.model.hidden;
  const float* x = branch_row(row);
  float* const to = this->row(row);
  if (!after.empty()) {
    // Not in place: other ranks may still read what this one gave them.
    float* const normed = products_.normed() + row * stage_.sizes.hidden;
    stage_.kernels->rms_norm(x, after.data(), hidden, spec.norm_eps, plus, normed);
    x = normed;
  }
  for (size_t i = 0; i < hidden; ++i) {
    to[i] += x[i] * spec.branch_scale;
  }
}

}  // namespace strata::cpu
