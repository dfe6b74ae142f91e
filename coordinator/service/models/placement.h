// Placing a model: its load options completed, its plan chosen, and whether the plan still holds.
// Pure functions, over a snapshot of the cluster where they take long; any thread.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_PLACEMENT_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/cluster/weight_holders.h"
#include "coordinator/planner/planner.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/admin.pb.h"

namespace strata {

// What a load has that does not say otherwise.
struct LoadDefaults {
  uint32_t max_batch_tokens = 512;
  uint64_t max_model_context = 8192;  // Tokens; less where the model has less.
};

// The options of a load with nothing left unset but who drafts, which follows from the plan
// (DefaultSpeculate). INVALID_ARGUMENT (CONTEXT_EXCEEDED, ALREADY_QUANTIZED, BAD_ACTIVATIONS,
// BAD_STANDBY, BAD_SPECULATE) or UNIMPLEMENTED (NOT_SUPPORTED) for what the model cannot have.
absl::StatusOr<v1::LoadOptions> CompleteLoadOptions(const ModelRuntime& model,
                                                    const LoadDefaults& defaults,
                                                    v1::LoadOptions options);

// Whether `draft` can guess for `model`: FAILED_PRECONDITION (DRAFT_MODEL_UNFIT) where they are one
// model, or their ids are not of one vocabulary.
absl::Status CheckDraftModel(const ModelRuntime& model, const ModelRuntime& draft);

// Who drafts tokens of a model that is loaded by this plan without saying so: "auto" where all its
// layers are on CPUs, of which it is known that a few rows cost little more than one; else "off".
std::string DefaultSpeculate(const v1::Plan& plan);

// What becomes of requests when a node is lost: as the options say, or by default.
v1::Recovery RecoveryOf(const v1::LoadOptions& options);

// The best plan for complete options on these nodes, with sentences that say why. Nodes whose disk
// cannot take a stage's weights are left out, unless the options name the nodes. Takes as long as
// MakePlan. Errors: FAILED_PRECONDITION (NO_NODES), RESOURCE_EXHAUSTED (NO_DISK), MakePlan's.
// `activations_by_default`: as PlannerRequest has it.
absl::StatusOr<v1::Plan> ChoosePlacement(const ModelRuntime& model, const v1::LoadOptions& options,
                                         PlannerCluster cluster, nanoseconds step_timeout,
                                         bool activations_by_default = false);

// The same, with a sentence more on what ranks of stages would change (CompareRanks).
absl::StatusOr<v1::Plan> ChooseAndCompare(const ModelRuntime& model, const v1::LoadOptions& options,
                                          const PlannerCluster& cluster, nanoseconds step_timeout,
                                          bool activations_by_default);

// The best plan for a model that is placed as `before` says, on nodes of which some that it has are
// gone: PlanReplacement. Errors: ChoosePlacement's.
absl::StatusOr<v1::Plan> ChooseReplacement(const ModelRuntime& model,
                                           const v1::LoadOptions& options,
                                           const PlannerCluster& cluster, const v1::Plan& before,
                                           const WeightHolders& holders, nanoseconds step_timeout);

// Whether the nodes of `after` can load its stages beside those of `before`, which serve, but for
// those that stay (StageStays): NO_ROOM_BESIDE, or NOT_SUPPORTED by a worker's version, or for a
// stage that several nodes compute.
absl::Status CheckFitsBeside(const ModelSpec& spec, const v1::LoadOptions& options,
                             const v1::Plan& before, const v1::Plan& after,
                             const ClusterState& cluster);

// A plan that is worth leaving the one that runs for: PlanBetter.
absl::StatusOr<std::optional<v1::Plan>> ChooseBetter(const ModelRuntime& model,
                                                     const v1::LoadOptions& options,
                                                     const PlannerCluster& cluster,
                                                     const v1::Plan& runs,
                                                     nanoseconds step_timeout);

// Whether two plans put the same layers on the same nodes with the same KV and numerics.
bool SamePlacement(const v1::Plan& a, const v1::Plan& b);

// What one rank of the plan's stages takes of its node's memory: weights, KV and what it computes
// with; and of the host's, where the device has memory of its own. Weights on their way are not
// among it.
struct PlacedPart {
  int stage = 0;
  const v1::PlanRank* rank = nullptr;  // The plan's.
  uint64_t bytes = 0;
  uint64_t host_bytes = 0;
};
// Of all ranks of all stages, in their order.
std::vector<PlacedPart> PartsOf(const ModelSpec& spec, const v1::LoadOptions& options,
                                const v1::Plan& plan);

// Whether the plan's nodes are there, in the lives that it names. ABORTED (CLUSTER_CHANGED).
absl::Status CheckStillThere(const v1::Plan& plan, const ClusterState& cluster);

// Whether the plan's nodes have the memory for it in a newer snapshot: another load may have taken
// it since. ABORTED (CLUSTER_CHANGED).
absl::Status CheckStillFits(const ModelRuntime& model, const v1::LoadOptions& options,
                            const v1::Plan& plan, const PlannerCluster& cluster);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_PLACEMENT_H_
