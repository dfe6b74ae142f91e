#include "worker/backend/cpu/shard/mixture_mlp.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "worker/backend/cpu/shard/router.h"

namespace strata::cpu {

absl::Status MixtureMlp::Allocate() {
  const ScratchSizes& sizes = stage_.sizes;
  const size_t rows = sizes.rows;
  RETURN_IF_ERROR(router_.Allocate(rows * sizes.experts * sizeof(float), "buffers"));
  RETURN_IF_ERROR(router_keys_.Allocate(rows * sizes.experts * sizeof(float), "buffers"));
  expert_rows_.Reserve(rows, sizes.used, sizes.experts);
  return expert_out_.Allocate(rows * sizes.used * sizes.hidden * sizeof(float), "buffers");
}

void MixtureMlp::Route(const LayerSpec& spec, const LayerWeights& weights) {
  const MlpSpec& mlp = spec.mlp;
  const MixtureWeights& mixture = weights.mixture;
  const uint32_t rows = stage_.batch.rows;
  const ExpertWeights& alike = mixture.experts[0];
  const Products::Users router_alone = {&mixture.router};
  const Products::Users all = {&mixture.router, &alike.gate, &alike.up};
  // One row is packed once, for the router and all experts.
  products_.Pack(residual_.BranchInputs(spec, weights.mlp_norm, rows == 1 ? all : router_alone),
                 rows);
  const std::array<MatmulArgs, 1> router = {
      products_.Product(mixture.router, rows, router_.as<float>(), stage_.sizes.experts, false)};
  products_.MultiplyPacked(router);
  expert_rows_.Begin(rows, mlp.router.used);
  stage_.pool->Split(
      rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          const float* const logits = router_.as<float>() + row * stage_.sizes.experts;
          float* const scratch = router_keys_.as<float>() + row * stage_.sizes.experts;
          ChooseExperts(mlp.router, {logits, mlp.experts},
                        expert_rows_.Choice(static_cast<uint32_t>(row)), mixture.corrections,
                        {scratch, mlp.experts});
        }
      },
      kSmallRows);
  expert_rows_.Arrange(mlp.experts, stage_.kernels->block_rows);
}

// What the experts take, packed by place.
void MixtureMlp::PackForExperts(const MixtureWeights& mixture) {
  const size_t hidden = stage_.spec.model.hidden;
  const size_t stride = stage_.sizes.hidden;
  float* const x = expert_out_.as<float>();  // Not written yet.
  const std::span<const ExpertRows::Block> blocks = expert_rows_.blocks();
  stage_.pool->Split(blocks.size(), [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const auto& [expert, rows] = blocks[b];
      for (uint32_t place = rows.first; place < rows.first + rows.count; ++place) {
        std::memcpy(x + place * stride,
                    products_.normed() + expert_rows_.RowAt(place) * size_t{stride},
                    hidden * sizeof(float));
      }
      const ExpertWeights& one = mixture.experts[expert];
      products_.PackBlock(products_.Rows(x, stride, hidden, {&one.gate, &one.up}), rows,
                          products_.PackedBy(0));
    }
  });
}

MatmulArgs MixtureMlp::ExpertProduct(const Linear& linear, const ExpertRows::Group& group,
                                     bool by_place, float* out, size_t stride) const {
  MatmulArgs args =
      products_.Product(linear, group.count, out + group.first * stride, stride, false);
  const size_t inputs = linear.weight.view().inputs;
  const size_t row_bytes =
      args.int8 ? stage_.kernels->quantized_row_bytes(inputs) : inputs * sizeof(float);
  args.packed += by_place ? group.first * row_bytes : 0;
  return args;
}

// function(group, first, end) for parts of the `panels` panels of every expert that has rows.
template <typename Function>
void MixtureMlp::SplitExperts(size_t panels, const Function& function) {
  const std::span<const ExpertRows::Group> groups = expert_rows_.groups();
  stage_.pool->Split(groups.size() * panels, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t first = begin % panels;
      const size_t count = std::min(end - begin, panels - first);
      function(groups[begin / panels], first, first + count);
      begin += count;
    }
  });
}

absl::Status MixtureMlp::MultiplyByExperts(const MlpSpec& mlp, const MixtureWeights& mixture,
                                           const RankColumns& ffn) {
  const size_t stride = stage_.sizes.expert_ffn;
  const bool by_place = stage_.batch.rows > 1;
  const OutputRange own = stage_.link->own(ffn);
  const OutputRange hidden = stage_.link->own(stage_.link->hidden());
  SplitExperts((own.size() + kLanes - 1) / kLanes, [&](const ExpertRows::Group& group, size_t first,
                                                       size_t end) {
    const ExpertWeights& one = mixture.experts[group.expert];
    const MatmulArgs gate =
        ExpertProduct(one.gate, group, by_place, gated_.gate() + own.begin, stride);
    const MatmulArgs up = ExpertProduct(one.up, group, by_place, gated_.up() + own.begin, stride);
    stage_.kernels->matmul(gate, first, end);
    stage_.kernels->matmul(up, first, end);
    const size_t output = first * kLanes;
    const size_t count = std::min<size_t>(end * kLanes, own.size()) - output;
    for (uint32_t row = 0; row < group.count; ++row) {
      float* const g = gate.out + row * stride + output;
      gated_.Activate(mlp, g, up.out + row * stride + output, count);
    }
  });
  RETURN_IF_ERROR(
      stage_.link->Gather(gated_.gate(), size_t{stage_.batch.rows} * mlp.router.used, stride, ffn));
  if (hidden.empty()) {
    return absl::OkStatus();
  }
  const std::span<const ExpertRows::Block> blocks = expert_rows_.blocks();
  stage_.pool->Split(blocks.size(), [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const auto& [expert, rows] = blocks[b];
      products_.PackBlock(
          products_.Rows(gated_.gate(), stride, mlp.ffn, {&mixture.experts[expert].down}), rows,
          products_.PackedBy(0));
    }
  });
  SplitExperts((hidden.size() + kLanes - 1) / kLanes,
               [&](const ExpertRows::Group& group, size_t first, size_t end) {
                 stage_.kernels->matmul(
                     ExpertProduct(mixture.experts[group.expert].down, group, true,
                                   expert_out_.as<float>() + hidden.begin, stage_.sizes.hidden),
                     first, end);
               });
  return absl::OkStatus();
}

// Of each row what its experts gave, weighed, to the residual stream.
absl::Status MixtureMlp::AddExperts(const LayerSpec& spec, const std::vector<float>& after) {
  const OutputRange own = stage_.link->own(stage_.link->hidden());
  const bool alone = stage_.link->alone();
  stage_.pool->Split(
      stage_.batch.rows,
      [&](size_t begin, size_t end) {
        for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
          float* const to = residual_.branch_row(row);
          if (spec.mlp.shared_ffn == 0) {
            std::fill_n(to + own.begin, own.size(), 0.0f);
          }
          const std::span<const Chosen> chosen = expert_rows_.Choice(row);
          for (size_t i = 0; i < chosen.size(); ++i) {
            const float weight = chosen[i].weight;
            const float* const from =
                expert_out_.as<float>() + expert_rows_.Places(row)[i] * stage_.sizes.hidden;
            for (size_t k = own.begin; k < own.end; ++k) {
              to[k] += weight * from[k];
            }
          }
          if (alone) {
            residual_.AddBranchRow(spec, after, row);
          }
        }
      },
      kSmallRows);
  return alone ? absl::OkStatus() : residual_.GatherBranch(spec, after);
}

absl::Status MixtureMlp::Compute(uint32_t layer) {
  const LayerSpec& spec = stage_.layer(layer);
  const LayerWeights& weights = stage_.layer_weights(layer);
  Route(spec, weights);
  if (stage_.batch.rows > 1) {
    PackForExperts(weights.mixture);
  }
  RETURN_IF_ERROR(MultiplyByExperts(spec.mlp, weights.mixture, stage_.link->ffn(layer)));
  if (spec.mlp.shared_ffn != 0) {
    RETURN_IF_ERROR(stage_.link->Barrier());  // Others read what is written anew.
    ASSIGN_OR_RETURN(
        const Products::Inputs down,
        gated_.MultiplyGated(products_.Rows(products_.normed(), stage_.sizes.hidden,
                                            stage_.spec.model.hidden, {&weights.gate, &weights.up}),
                             spec.mlp, weights, stage_.link->shared_ffn(layer)));
    const OutputRange own = stage_.link->own(stage_.link->hidden());
    if (!own.empty()) {
      const std::array<MatmulArgs, 1> product = {
          products_.Product(weights.down, stage_.batch.rows, residual_.branch_row(0) + own.begin,
                            stage_.sizes.branch, false)};
      products_.Multiply(down, product);
    }
  }
  return AddExperts(spec, weights.after_mlp_norm);
}

}  // namespace strata::cpu
