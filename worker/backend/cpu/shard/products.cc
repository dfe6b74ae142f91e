#include "worker/backend/cpu/shard/products.h"

#include <algorithm>
#include <span>
#include <vector>

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

absl::Status Products::Allocate() {
  const ScratchSizes& sizes = stage_.sizes;
  RETURN_IF_ERROR(normed_.Allocate(sizes.Normed() * sizeof(float), "buffers"));
  RETURN_IF_ERROR(packed_.Allocate(sizes.rows * sizes.packed * sizeof(float), "buffers"));
  return sizes.int8 > 0 ? int8_.Allocate(sizes.Int8(), "buffers") : absl::OkStatus();
}

bool Products::TakesInt8(const Linear& linear) const {
  return stage_.spec.activations == v1::ACTIVATIONS_INT8 && linear.weight.view().group != 0;
}

Products::Inputs Products::Rows(const float* x, size_t stride, size_t inputs, Users users) const {
  const auto int8 = [this](const Linear* user) { return TakesInt8(*user); };
  return {.x = x,
          .stride = stride,
          .inputs = inputs,
          .int8 = std::any_of(users.begin(), users.end(), int8),
          .floats = !std::all_of(users.begin(), users.end(), int8)};
}

Products::Inputs Products::Normed(Inputs inputs, const std::vector<float>& weight, NormKind norm,
                                  float eps) {
  inputs.norm_weight = &weight;
  inputs.norm = norm;
  inputs.norm_eps = eps;
  return inputs;
}

Products::PackedRows Products::PackedBy(uint32_t thread) {
  if (thread == 0) {
    return {.normed = normed_.as<float>(), .floats = packed_.as(), .int8 = int8_.as()};
  }
  const size_t row = (thread - 1) * stage_.sizes.own_rows;
  return {.normed = normed_.as<float>() + (stage_.sizes.rows + row) * stage_.sizes.hidden,
          .int8 = int8_.as() + stage_.sizes.rows * stage_.sizes.int8 + row * stage_.sizes.own_int8};
}

void Products::PackBlock(const Inputs& inputs, RowBlock block, const PackedRows& to) const {
  const float* x = inputs.x + block.first * inputs.stride;
  size_t stride = inputs.stride;
  if (inputs.norm_weight != nullptr) {
    const float plus = inputs.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
    float* const normed = to.normed + block.first * stage_.sizes.hidden;
    for (uint32_t r = 0; r < block.count; ++r) {
      stage_.kernels->rms_norm(x + r * stride, inputs.norm_weight->data(), inputs.inputs,
                               inputs.norm_eps, plus, normed + r * stage_.sizes.hidden);
    }
    x = normed;
    stride = stage_.sizes.hidden;
  }
  if (inputs.int8) {
    stage_.kernels->quantize_rows(
        x, stride, block.count, inputs.inputs,
        to.int8 + block.first * stage_.kernels->quantized_row_bytes(inputs.inputs));
  }
  if (inputs.floats) {
    stage_.kernels->pack_rows(x, stride, block.count, inputs.inputs,
                              to.floats + block.first * inputs.inputs * sizeof(float));
  }
}

void Products::Pack(const Inputs& inputs, uint32_t rows) {
  const uint32_t blocks = RowBlocks(rows, stage_.kernels->block_rows);
  const PackedRows to = PackedBy(0);
  stage_.pool->Split(blocks, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      PackBlock(inputs, RowBlockAt(rows, blocks, static_cast<uint32_t>(b)), to);
    }
  });
}

MatmulArgs Products::Product(const Linear& linear, uint32_t rows, float* out, size_t stride,
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

void Products::PackForAll(const Inputs& inputs) {
  if (inputs.quantized == nullptr && !EachPacks(inputs)) {
    Pack(inputs, stage_.batch.rows);
  }
}

Products::PackedRows Products::PackOwn(const Inputs& inputs, uint32_t thread) {
  if (inputs.quantized != nullptr) {
    return {.int8 = inputs.quantized};
  }
  if (!EachPacks(inputs)) {
    return PackedBy(0);
  }
  const PackedRows own = PackedBy(thread);
  PackBlock(inputs, {0, stage_.batch.rows}, own);
  return own;
}

MatmulArgs Products::WithRows(MatmulArgs product, const PackedRows& packed) {
  product.packed = product.int8 ? packed.int8 : packed.floats;
  return product;
}

void Products::Multiply(const Inputs& inputs, std::span<const MatmulArgs> products) {
  PackForAll(inputs);
  const size_t panels = PanelsAtOnce(products[0].rows);
  stage_.pool->Share(Shares(products, panels), [&](uint32_t thread, ThreadPool::Pieces pieces) {
    const PackedRows packed = PackOwn(inputs, thread);
    for (auto piece = pieces.Next(); !piece.empty(); piece = pieces.Next()) {
      EachPart(products, panels, piece, [&](const MatmulArgs& product, size_t from, size_t to) {
        stage_.kernels->matmul(WithRows(product, packed), from, to);
      });
    }
  });
}

void Products::MultiplyPacked(std::span<const MatmulArgs> products) {
  const size_t panels = PanelsAtOnce(products[0].rows);
  stage_.pool->Split(Shares(products, panels), [&](size_t begin, size_t end) {
    EachPart(products, panels, {begin, end}, stage_.kernels->matmul);
  });
}

}  // namespace strata::cpu
