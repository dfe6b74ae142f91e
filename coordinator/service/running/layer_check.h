// What `strata model check` computes and compares; no process, loop or clock.
#ifndef STRATA_COORDINATOR_SERVICE_RUNNING_LAYER_CHECK_H_
#define STRATA_COORDINATOR_SERVICE_RUNNING_LAYER_CHECK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/planner/planner.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

inline constexpr uint32_t kDefaultCheckTokens = 24;
// That a layer computes at once on the node which computes layer by layer: few, so that steps of
// deployments come in between.
inline constexpr uint32_t kReferenceRows = 8;

// Digests of rows, by layer and position; those of the logits follow the last layer's.
using LayerTable = std::vector<std::vector<uint64_t>>;

// `count` token ids, always the same of a model and spread over its vocabulary, without those that
// end an answer or that its tokenizer calls special, as far as there are others.
std::vector<uint32_t> CheckTokens(const ModelRuntime& model, uint32_t count);

// Memory for the largest of the layers, alone, as deployments of these (complete) options have it.
uint64_t LargestLayerBytes(const ModelRuntime& model, const v1::LoadOptions& options);

// The numerics in which a plan computes its layers, by layer.
std::vector<std::string> NumericsByLayer(const v1::Plan& plan, uint32_t layers);

// The node that computes layer by layer, of those that a plan could use: of these numerics, if
// possible with `bytes` free in memory, and on its disk, where it may have to keep a layer's
// weights; then one that has no stage of the plan, then the one with most memory. Null when none
// has the numerics.
const PlannerNode* ChooseReference(const std::vector<PlannerNode>& nodes, const v1::Plan& plan,
                                   const std::string& numerics, uint64_t bytes);

// How much of its row's largest value a value may differ that is computed in other numerics, with
// float32 activations, and where a plan's are int8.
inline constexpr double kTolerance = 2e-3;
inline constexpr double kInt8Tolerance = 5e-2;
double ToleranceOf(const v1::Plan& plan);

// The largest such difference between rows of as many float32 numbers each, and of which row it is.
// Where they are not as many numbers, or not finite, infinity.
struct RowDifference {
  double largest = 0;
  uint32_t row = 0;
};
RowDifference DifferenceOf(const std::string& a, const std::string& b, size_t rows);

// Adds an answer of that node about `layer`, of `layers`, to the table. DATA_LOSS (BAD_RESULT) when
// it cannot be one.
absl::Status AddComputed(const v1::LayersComputed& computed, uint32_t layer, uint32_t layers,
                         uint32_t tokens, LayerTable* table);

// Compares what `plan` computed of a model of that name with what others did, and completes
// `check`. Both tables are complete. `computed_by`: who else computed a layer; of the one that
// differs, or the first one, that is the reference_node.
void CompareLayers(const std::string& model, const v1::Plan& plan, const LayerTable& stages,
                   const LayerTable& reference,
                   const std::function<std::string(uint32_t layer)>& computed_by,
                   v1::ModelCheck* check);

// Completes a `check` that is equal so far: across_node's rows of a layer differ so much from what
// the plan computed. The first that is not within `tolerance` makes it unequal.
void NoteAcross(const std::string& model, const v1::Plan& plan, uint32_t layer,
                const RowDifference& difference, v1::ModelCheck* check);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_RUNNING_LAYER_CHECK_H_
