// Places a model's layers on nodes. Pure: a function of a snapshot. Algorithms and their sources:
// docs/ARCHITECTURE.md, "Placing layers".
#ifndef STRATA_COORDINATOR_PLANNER_PLANNER_H_
#define STRATA_COORDINATOR_PLANNER_PLANNER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/model/rank_outputs.h"
#include "common/model/stage_devices.h"
#include "strata/v1/types.pb.h"

namespace strata {

// One of several devices of a node, by rank.
struct PlannerDevice {
  uint32_t index = 0;  // As its worker counts them.
  StageDevice of_stage;

  bool operator==(const PlannerDevice&) const = default;
};

// A node as the planner sees it.
struct PlannerNode {
  std::string name;
  uint64_t incarnation = 0;
  std::string device = "cpu";
  std::string device_name;  // For people: "NVIDIA H200"; "": not known.
  std::string numerics;     // "cpu-2"; nodes of equal numerics compute the same bits.
  uint64_t free_bytes = 0;  // Memory that weights, KV and buffers may still take.
  // Several over which it divides each of its stages, of which free_bytes are as OfAllMemory
  // counts; a model needs of_rank then. Empty: it has one.
  std::vector<PlannerDevice> devices = {};
  // Of a device with memory of its own: the host's that its stages may still take, and weights on
  // their way. The largest number: it is not counted.
  uint64_t host_free_bytes = std::numeric_limits<uint64_t>::max();
  double read_bytes_per_s = 0;  // > 0.
  double flops_per_s = 0;       // > 0.
  // Of the disk of its weight cache; the largest number where they are not known.
  uint64_t disk_free_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t cache_bytes = std::numeric_limits<uint64_t>::max();  // That, and what is cached there.
  bool ranks = false;  // It can compute a stage together with others.
  // Nodes of one machine share what it reads a second; "": no other is on it.
  std::string machine = {};
};

// One way, from a node to another; the coordinator is index kCoordinator.
struct PlannerLink {
  double latency_ms = 0.1;
  double bytes_per_s = 1e9;
};

struct PlannerCluster {
  std::vector<PlannerNode> nodes;
  // links[i][j], i and j in [0, nodes.size()]; the last index is the coordinator.
  std::vector<std::vector<PlannerLink>> links;
};

// The weights of the model's parts on a kind of device.
struct PlannerWeights {
  std::vector<uint64_t> layer_bytes;
  std::vector<uint64_t> layer_read_bytes;
  uint64_t embed_bytes = 0;
  uint64_t head_bytes = 0;
};

// Bytes and work of the model's parts, as stored on a node.
struct PlannerModel {
  ModelSpec spec;
  std::vector<uint64_t> layer_bytes;            // Weights of each layer, as packed.
  std::vector<uint64_t> layer_read_bytes = {};  // What a token reads of them; empty: all.
  // What the largest tensor of each layer is made from, and of embedding and head; empty: nothing.
  std::vector<uint64_t> layer_source_bytes = {};
  uint64_t end_source_bytes = 0;
  std::vector<double> layer_flops;  // For one token, without attention over the context.
  uint64_t embed_bytes = 0;         // Held by the first stage.
  uint64_t head_bytes = 0;          // Final norm and head, held by the last stage (tied too).
  double head_flops = 0;
  uint32_t kv_element_bytes = 2;
  std::string weight_format;  // For the numerics class: "bf16", ...
  std::string head_format;
  std::string activations;  // "f32"
  std::string kv_format;    // "f16"
  // Where MLX keeps weights otherwise than CPUs do; else as above.
  std::optional<PlannerWeights> on_mlx = {};
  // What of a stage over these shares one rank has. Null: stages have one rank alone.
  std::function<PlannerWeights(const std::vector<OutputRange>& shares, size_t rank)> of_rank =
      nullptr;
};

struct PlannerRequest {
  v1::LoadOptions options;  // Complete: context, sessions, kv_tokens, max_batch_tokens set.
  uint32_t max_in_flight_extra = 1;  // Steps in flight are stages + this.
  // Whether int8 activations are but the default: then nodes that take float32 alone have these.
  bool activations_by_default = false;
};

// Leaves a node out, if it is there.
void DropNode(const std::string& name, PlannerCluster* cluster);

// Of the host's memory, the most that weights of layers [begin, end) take on their way to a device
// with memory of its own: no less than a worker counts (StagedWeights), and more with more layers.
uint64_t StagedBytes(const PlannerModel& model, uint32_t begin, uint32_t end);

// The plan (epoch 0), of nodes of one numerics; of several only where those of none alone have
// room, or where that is a fifth better by the goal's measure (and takes no int8 activations away),
// or by options.layers. Where options leave ranks and layers open, one with ranks where these win
// (WithRanksWhereTheyWin). Or why there is none: RESOURCE_EXHAUSTED with how much is missing and
// which node limits, INVALID_ARGUMENT for pins that do not cover the layers, NOT_FOUND for a node's
// name, FAILED_PRECONDITION (BAD_ACTIVATIONS) where nodes do not take the activations. With ranks:
// MakeRankedPlan's.
absl::StatusOr<v1::Plan> MakePlan(const PlannerCluster& cluster, const PlannerModel& model,
                                  const PlannerRequest& request);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_PLANNER_H_
