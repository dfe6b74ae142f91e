// Products of a stage's rows: how rows are packed, and how threads share matrices.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "worker/backend/cpu/shard/cpu_shard.h"

namespace strata::cpu {
namespace {

// What threads share of several products: all panels of each, so many at a time.
size_t Shares(std::span<const MatmulArgs> products, size_t panels) {
  size_t shares = 0;
  for (const MatmulArgs& product : products) {
    shares += (product.weights.panels() + panels - 1) / panels;
  }
  return shares;
}

// function(product, first, end) for those panels of each product that are in the piece.
template <typename Function>
void EachPart(std::span<const MatmulArgs> products, size_t panels, ThreadPool::Piece piece,
              const Function& function) {
  size_t before = 0;
  for (const MatmulArgs& product : products) {
    const size_t shares = Shares({&product, 1}, panels);
    const size_t from = std::max(piece.begin, before);
    const size_t to = std::min(piece.end, before + shares);
    if (from < to) {
      function(product, (from - before) * panels,
               std::min((to - before) * panels, product.weights.panels()));
    }
    before += shares;
  }
}

}  // namespace

bool CpuShard::TakesInt8(const Linear& linear) const {
  return spec_.activations == v1::ACTIVATIONS_INT8 && linear.weight.view().group != 0;
}

CpuShard::Inputs CpuShard::Rows(const float* x, size_t stride, size_t inputs, Users users) const {
  const auto int8 = [this](const Linear* user) { return TakesInt8(*user); };
  return {.x = x,
          .stride = stride,
          .inputs = inputs,
          .int8 = std::any_of(users.begin(), users.end(), int8),
          .floats = !std::all_of(users.begin(), users.end(), int8)};
}

CpuShard::Inputs CpuShard::Normed(Inputs inputs, const std::vector<float>& weight, NormKind norm,
                                  float eps) {
  inputs.norm_weight = &weight;
  inputs.norm = norm;
  inputs.norm_eps = eps;
  return inputs;
}

CpuShard::Inputs CpuShard::BranchInputs(const LayerSpec& spec, const std::vector<float>& before,
                                        Users users) const {
  const Inputs inputs = Rows(residual_.as<float>(), sizes_.hidden, spec_.model.hidden, users);
  return before.empty() ? inputs : Normed(inputs, before, spec.norm, spec.norm_eps);
}

CpuShard::PackedRows CpuShard::PackedBy(uint32_t thread) {
  if (thread == 0) {
    return {.normed = normed_.as<float>(), .floats = packed_.as(), .int8 = int8_.as()};
  }
  const size_t row = (thread - 1) * sizes_.own_rows;
  return {.normed = normed_.as<float>() + (sizes_.rows + row) * sizes_.hidden,
          .int8 = int8_.as() + sizes_.rows * sizes_.int8 + row * sizes_.own_int8};
}

void CpuShard::PackBlock(const Inputs& inputs, RowBlock block, const PackedRows& to) const {
  const float* x = inputs.x + block.first * inputs.stride;
  size_t stride = inputs.stride;
  if (inputs.norm_weight != nullptr) {
    const float plus = inputs.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
    float* const normed = to.normed + block.first * sizes_.hidden;
    for (uint32_t r = 0; r < block.count; ++r) {
      kernels_->rms_norm(x + r * stride, inputs.norm_weight->data(), inputs.inputs, inputs.norm_eps,
                         plus, normed + r * sizes_.hidden);
    }
    x = normed;
    stride = sizes_.hidden;
  }
  if (inputs.int8) {
    kernels_->quantize_rows(x, stride, block.count, inputs.inputs,
                            to.int8 + block.first * kernels_->quantized_row_bytes(inputs.inputs));
  }
  if (inputs.floats) {
    kernels_->pack_rows(x, stride, block.count, inputs.inputs,
                        to.floats + block.first * inputs.inputs * sizeof(float));
  }
}

void CpuShard::Pack(const Inputs& inputs, uint32_t rows) {
  const uint32_t blocks = RowBlocks(rows, kernels_->block_rows);
  const PackedRows to = PackedBy(0);
  pool_->Split(blocks, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      PackBlock(inputs, RowBlockAt(rows, blocks, static_cast<uint32_t>(b)), to);
    }
  });
}

MatmulArgs CpuShard::Product(const Linear& linear, uint32_t rows, float* out, size_t stride,
                             bool add) const {
  return MatmulArgs{.weights = linear.weight.view(),
                    .packed = TakesInt8(linear) ? int8_.as() : packed_.as(),
                    .int8 = TakesInt8(linear),
                    .rows = rows,
                    .bias = linear.bias.empty() ? nullptr : linear.bias.data(),
                    .out = out,
                    .out_stride = stride,
                    .add = add};
}

void CpuShard::PackForAll(const Inputs& inputs) {
  if (inputs.quantized == nullptr && !EachPacks(inputs)) {
    Pack(inputs, batch_.rows);
  }
}

CpuShard::PackedRows CpuShard::PackOwn(const Inputs& inputs, uint32_t thread) {
  if (inputs.quantized != nullptr) {
    return {.int8 = inputs.quantized};
  }
  if (!EachPacks(inputs)) {
    return PackedBy(0);
  }
  const PackedRows own = PackedBy(thread);
  PackBlock(inputs, {0, batch_.rows}, own);
  return own;
}

MatmulArgs CpuShard::WithRows(MatmulArgs product, const PackedRows& packed) {
  product.packed = product.int8 ? packed.int8 : packed.floats;
  return product;
}

void CpuShard::Multiply(const Inputs& inputs, std::span<const MatmulArgs> products) {
  PackForAll(inputs);
  const size_t panels = PanelsAtOnce(products[0].rows);
  pool_->Share(Shares(products, panels), [&](uint32_t thread, ThreadPool::Pieces pieces) {
    const PackedRows packed = PackOwn(inputs, thread);
    for (auto piece = pieces.Next(); !piece.empty(); piece = pieces.Next()) {
      EachPart(products, panels, piece, [&](const MatmulArgs& product, size_t from, size_t to) {
        kernels_->matmul(WithRows(product, packed), from, to);
      });
    }
  });
}

void CpuShard::MultiplyPacked(std::span<const MatmulArgs> products) {
  const size_t panels = PanelsAtOnce(products[0].rows);
  pool_->Split(Shares(products, panels), [&](size_t begin, size_t end) {
    EachPart(products, panels, {begin, end}, kernels_->matmul);
  });
}

void CpuShard::FinishBranch(const Inputs& inputs, const Linear& linear, const LayerSpec& spec,
                            const std::vector<float>& after) {
  const uint32_t rows = batch_.rows;
  const bool direct = after.empty() && spec.branch_scale == 1;
  const std::array<MatmulArgs, 1> product = {
      direct ? Product(linear, rows, residual_.as<float>(), sizes_.hidden, true)
             : Product(linear, rows, branch_.as<float>(), sizes_.branch, false)};
  Multiply(inputs, product);
  if (!direct) {
    AddBranch(spec, after);
  }
}

void CpuShard::AddBranch(const LayerSpec& spec, const std::vector<float>& after) {
  pool_->Split(
      batch_.rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          AddBranchRow(spec, after, row);
        }
      },
      kSmallRows);
}

void CpuShard::AddBranchRow(const LayerSpec& spec, const std::vector<float>& after, size_t row) {
  const float plus = spec.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
  const size_t hidden = spec_.model.hidden;
  float* const x = branch_.as<float>() + row * sizes_.branch;
  float* const to = residual_.as<float>() + row * sizes_.hidden;
  if (!after.empty()) {
    kernels_->rms_norm(x, after.data(), hidden, spec.norm_eps, plus, x);
  }
  for (size_t i = 0; i < hidden; ++i) {
    to[i] += x[i] * spec.branch_scale;
  }
}

}  // namespace strata::cpu
