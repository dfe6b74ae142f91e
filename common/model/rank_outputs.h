// Which outputs of a stage each of its ranks computes. Pure; any thread.
#ifndef STRATA_COMMON_MODEL_RANK_OUTPUTS_H_
#define STRATA_COMMON_MODEL_RANK_OUTPUTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"

namespace strata {

// Ranks of one stage.
inline constexpr uint32_t kMostRanks = 8;
// Outputs of a matrix are divided by so many: what kernels keep together.
inline constexpr uint32_t kOutputPanel = 16;
// Shares are in so many parts (v1::PlanRank).
inline constexpr uint32_t kShareParts = 65536;

// Things [begin, end).
struct OutputRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  uint32_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const OutputRange&) const = default;
};

// Shares of [0, kShareParts), one behind another, as large as the weights are to each other.
// INVALID_ARGUMENT (RANKS_INVALID): none, more than kMostRanks, or a weight that is no positive
// number.
absl::StatusOr<std::vector<OutputRange>> SharesByWeight(std::span<const double> weights);

// What one rank has of a layer.
struct LayerOutputs {
  // Query heads, and the KV heads that they see, of which all of the rank's have equally many. A KV
  // head is on several ranks where there are fewer of them than ranks; each of these ranks has one.
  OutputRange heads = {};
  OutputRange kv_heads = {};
  OutputRange ffn = {};         // Of gate and up; of each expert's, where there are experts.
  OutputRange shared_ffn = {};  // Of the shared experts' likewise.
};

// What one rank has of a model. Every output of a matrix is one rank's, but for those that all
// compute: routers, and what makes latent vectors.
struct RankOutputs {
  OutputRange hidden;  // Of the projections that end branches.
  OutputRange vocab;   // Of the head.
  std::vector<LayerOutputs> layers;
};

// By rank. Outputs are divided in panels, attention in heads; a rank may have none of a matrix.
// `shares` are SharesByWeight's.
std::vector<RankOutputs> SplitOutputs(const ModelSpec& model, std::span<const OutputRange> shares);

// The most bytes that ranks gather at once: of a batch of so many rows, in the layers [first_layer,
// last_layer], and where `heads` of the logits of a step. Ranks of several workers have as much of
// it on its way: each packs its own columns, and takes those of the others.
uint64_t MostGatheredBytes(const ModelSpec& model, uint32_t first_layer, uint32_t last_layer,
                           uint32_t rows, bool heads);

// The model with the heads that a rank has in place of all; else as it is.
ModelSpec WithHeadsOf(const RankOutputs& rank, ModelSpec model);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_RANK_OUTPUTS_H_
