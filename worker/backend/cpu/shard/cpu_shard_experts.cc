// Mixtures of experts: a router chooses the experts of each row, and each expert computes the rows
// that it was chosen for, as one product. Numerics: router.h; and of each row the branch is what
// its experts give, by ascending id from +0, or from what the shared expert gives, each multiplied
// by its weight before it is added. What an expert gives for a row does not depend on the rows
// beside it.
#include <algorithm>
#include <array>
#include <cstring>

#include "worker/backend/cpu/shard/cpu_shard.h"

namespace strata::cpu {

void CpuShard::Route(const LayerSpec& spec, const LayerWeights& weights) {
  const MlpSpec& mlp = spec.mlp;
  const MixtureWeights& mixture = weights.mixture;
  const uint32_t rows = batch_.rows;
  const ExpertWeights& alike = mixture.experts[0];
  const Users router_alone = {&mixture.router};
  const Users all = {&mixture.router, &alike.gate, &alike.up};
  // One row is packed once, for the router and all experts.
  Pack(BranchInputs(spec, weights.mlp_norm, rows == 1 ? all : router_alone), rows);
  const std::array<MatmulArgs, 1> router = {
      Product(mixture.router, rows, router_.as<float>(), sizes_.experts, false)};
  MultiplyPacked(router);
  expert_rows_.Begin(rows, mlp.router.used);
  pool_->Split(
      rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          const float* const logits = router_.as<float>() + row * sizes_.experts;
          float* const scratch = router_keys_.as<float>() + row * sizes_.experts;
          ChooseExperts(mlp.router, {logits, mlp.experts},
                        expert_rows_.Choice(static_cast<uint32_t>(row)), mixture.corrections,
                        {scratch, mlp.experts});
        }
      },
      kSmallRows);
  expert_rows_.Arrange(mlp.experts, kernels_->block_rows);
}

// What the experts take, packed by place.
void CpuShard::PackForExperts(const MixtureWeights& mixture) {
  const size_t hidden = spec_.model.hidden;
  const size_t stride = sizes_.hidden;
  float* const x = expert_out_.as<float>();  // Not written yet.
  const std::span<const ExpertRows::Block> blocks = expert_rows_.blocks();
  pool_->Split(blocks.size(), [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const auto& [expert, rows] = blocks[b];
      for (uint32_t place = rows.first; place < rows.first + rows.count; ++place) {
        std::memcpy(x + place * stride,
                    normed_.as<float>() + expert_rows_.RowAt(place) * size_t{stride},
                    hidden * sizeof(float));
      }
      const ExpertWeights& one = mixture.experts[expert];
      PackBlock(Rows(x, stride, hidden, {&one.gate, &one.up}), rows, PackedBy(0));
    }
  });
}

MatmulArgs CpuShard::ExpertProduct(const Linear& linear, const ExpertRows::Group& group,
                                   bool by_place, float* out, size_t stride) const {
  MatmulArgs args = Product(linear, group.count, out + group.first * stride, stride, false);
  const size_t inputs = linear.weight.view().inputs;
  const size_t row_bytes =
      args.int8 ? kernels_->quantized_row_bytes(inputs) : inputs * sizeof(float);
  args.packed += by_place ? group.first * row_bytes : 0;
  return args;
}

// function(group, first, end) for parts of the `panels` panels of every expert that has rows.
template <typename Function>
void CpuShard::SplitExperts(size_t panels, const Function& function) {
  const std::span<const ExpertRows::Group> groups = expert_rows_.groups();
  pool_->Split(groups.size() * panels, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t first = begin % panels;
      const size_t count = std::min(end - begin, panels - first);
      function(groups[begin / panels], first, first + count);
      begin += count;
    }
  });
}

void CpuShard::MultiplyByExperts(const MlpSpec& mlp, const MixtureWeights& mixture) {
  const size_t stride = sizes_.expert_ffn;
  const bool by_place = batch_.rows > 1;
  SplitExperts((mlp.ffn + kLanes - 1) / kLanes, [&](const ExpertRows::Group& group, size_t first,
                                                    size_t end) {
    const ExpertWeights& one = mixture.experts[group.expert];
    const MatmulArgs gate = ExpertProduct(one.gate, group, by_place, gate_.as<float>(), stride);
    const MatmulArgs up = ExpertProduct(one.up, group, by_place, up_.as<float>(), stride);
    kernels_->matmul(gate, first, end);
    kernels_->matmul(up, first, end);
    const size_t output = first * kLanes;
    const size_t count = std::min<size_t>(end * kLanes, mlp.ffn) - output;
    for (uint32_t row = 0; row < group.count; ++row) {
      float* const g = gate.out + row * stride + output;
      Activate(mlp, g, up.out + row * stride + output, count);
    }
  });
  const std::span<const ExpertRows::Block> blocks = expert_rows_.blocks();
  pool_->Split(blocks.size(), [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      const auto& [expert, rows] = blocks[b];
      PackBlock(Rows(gate_.as<float>(), stride, mlp.ffn, {&mixture.experts[expert].down}), rows,
                PackedBy(0));
    }
  });
  SplitExperts((spec_.model.hidden + kLanes - 1) / kLanes,
               [&](const ExpertRows::Group& group, size_t first, size_t end) {
                 kernels_->matmul(ExpertProduct(mixture.experts[group.expert].down, group, true,
                                                expert_out_.as<float>(), sizes_.hidden),
                                  first, end);
               });
}

// Of each row what its experts gave, weighed, to the residual stream.
void CpuShard::AddExperts(const LayerSpec& spec, const std::vector<float>& after) {
  const size_t hidden = spec_.model.hidden;
  pool_->Split(
      batch_.rows,
      [&](size_t begin, size_t end) {
        for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
          float* const to = branch_.as<float>() + row * sizes_.branch;
          if (spec.mlp.shared_ffn == 0) {
            std::fill_n(to, hidden, 0.0f);
          }
          const std::span<const Chosen> chosen = expert_rows_.Choice(row);
          for (size_t i = 0; i < chosen.size(); ++i) {
            const float weight = chosen[i].weight;
            const float* const from =
                expert_out_.as<float>() + expert_rows_.Places(row)[i] * sizes_.hidden;
            for (size_t k = 0; k < hidden; ++k) {
              to[k] += weight * from[k];
            }
          }
          AddBranchRow(spec, after, row);
        }
      },
      kSmallRows);
}

void CpuShard::MixtureMlp(const LayerSpec& spec, const LayerWeights& weights) {
  Route(spec, weights);
  if (batch_.rows > 1) {
    PackForExperts(weights.mixture);
  }
  MultiplyByExperts(spec.mlp, weights.mixture);
  if (spec.mlp.shared_ffn != 0) {
    const Inputs down = MultiplyGated(
        Rows(normed_.as<float>(), sizes_.hidden, spec_.model.hidden, {&weights.gate, &weights.up}),
        spec.mlp, weights, spec.mlp.shared_ffn);
    const std::array<MatmulArgs, 1> product = {
        Product(weights.down, batch_.rows, branch_.as<float>(), sizes_.branch, false)};
    Multiply(down, product);
  }
  AddExperts(spec, weights.after_mlp_norm);
}

}  // namespace strata::cpu
