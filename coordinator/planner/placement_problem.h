// What the searches see of a cluster and a model: times, bytes and hops of stages. Times in ms.
#ifndef STRATA_COORDINATOR_PLANNER_PLACEMENT_PROBLEM_H_
#define STRATA_COORDINATOR_PLANNER_PLACEMENT_PROBLEM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "coordinator/planner/planner.h"

namespace strata {

class Footprint;
class NodeDevices;

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// What bytes, or operations, take at a rate.
inline double MsAt(double amount, double per_s) { return 1e3 * amount / std::max(per_s, 1.0); }

// What a step of so many rows reads of a layer's weights, of which one row reads `read` of `all`.
double ReadByRows(double read, double all, const MlpSpec& mlp, uint32_t rows);

// Layers [begin, end) on a node.
struct PlacedStage {
  size_t node = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const PlacedStage&) const = default;
};

struct Placement {
  std::vector<PlacedStage> stages;  // In order of layers; no node twice.
  double latency_ms = kNever;       // One token through all stages and back.
};

// Const while a search runs, except for `pages` and `slowest_ms`, which a goal sets between
// searches. `nodes` counts only those of one numerics class.
class PlacementProblem {
 public:
  // `members` are indices into cluster.nodes; here they are 0 to members.size() - 1, and
  // coordinator() is one more. `context` tokens: decode is timed at half of it. Window groups get
  // what `sessions` sequences of any length have of them. Without links only what a node alone can
  // hold may be asked: they are as many as pairs of nodes. Times are those of a step with `rows`
  // rows of one sequence.
  enum class Links { kAll, kNone };
  PlacementProblem(const PlannerCluster& cluster, const PlannerModel& model,
                   const std::vector<size_t>& members, uint32_t max_batch_tokens, uint32_t context,
                   uint32_t sessions = 1, Links links = Links::kAll, uint32_t rows = 1);

  size_t nodes() const { return nodes_.size(); }
  size_t coordinator() const { return nodes_.size(); }
  uint32_t layers() const { return layers_; }
  // Whether all layers cost the same in time and memory, so that only their number counts.
  bool equal_layers() const { return equal_layers_; }
  const PlannerNode& node(size_t i) const { return *nodes_[i]; }

  // The KV pages that every stage grants of a full group, and the most time that a stage or a
  // transfer may take.
  uint64_t pages = 0;
  double slowest_ms = kNever;

  // Time of a step in layers [begin, end), with embedding and head where they are.
  double StageMs(size_t node, uint32_t begin, uint32_t end) const;
  // Weights, KV and overhead of a stage on a node. On one with several devices each part counts as
  // OfAllMemory has it, so that a worker counts no more of the whole; and weights have what devices
  // take more than one besides: buffers, and what gathers take.
  uint64_t StageBytes(size_t node, uint32_t begin, uint32_t end) const;
  uint64_t WeightBytes(size_t node, uint32_t begin, uint32_t end) const;
  // Of a node with several devices, the number of the one that is filled furthest.
  std::optional<uint32_t> FullestDevice(size_t node, uint32_t begin, uint32_t end) const;
  // The least that all weights, and all KV, take on any of the nodes.
  uint64_t LeastWeightBytes() const;
  uint64_t LeastKvBytes(uint64_t pages) const;
  // Of the host's memory, the most that it takes while it is loaded; 0 where the node's device has
  // none of its own, or what is free of the host's is not known.
  uint64_t HostBytes(size_t node, uint32_t begin, uint32_t end) const;
  const std::vector<KvGroupSpec>& groups() const { return groups_; }
  // Pages of a group where full ones get `pages`; `stages`: of the plan, 0: as many as there may
  // be.
  uint64_t GroupPages(uint32_t group, uint64_t pages, size_t stages = 0) const;
  // All KV of these layers on a node then.
  uint64_t KvBytes(size_t node, uint32_t begin, uint32_t end, uint64_t pages,
                   size_t stages = 0) const;
  // Whether the stage fits the node's memory, and its host's, and slowest_ms.
  bool Allowed(size_t node, uint32_t begin, uint32_t end) const {
    return StageBytes(node, begin, end) <= nodes_[node]->free_bytes &&
           HostBytes(node, begin, end) <= nodes_[node]->host_free_bytes &&
           StageMs(node, begin, end) <= slowest_ms;
  }

  // One hop of a step's activations (or ids, from and to the coordinator): latency and transfer.
  // kNever where the transfer alone takes longer than slowest_ms.
  double HopMs(size_t from, size_t to) const {
    const size_t i = from * (nodes() + 1) + to;
    return links_->transfer_ms[i] <= slowest_ms ? links_->hop_ms[i] : kNever;
  }
  double TransferMs(size_t from, size_t to) const {
    return links_->transfer_ms[from * (nodes() + 1) + to];
  }
  // Whether a hop between two of them is kNever.
  bool AnyHopBlocked() const { return links_->any_cut || links_->slowest_transfer_ms > slowest_ms; }

  // For equal layers: the most layers that the node can take in a role.
  uint32_t Capacity(size_t node, bool first, bool last) const;
  // For equal layers: one layer, the embedding, the head.
  double LayerMs(size_t node) const { return layer_ms_[node][1]; }
  double EmbedMs(size_t node) const { return embed_ms_[node]; }
  double HeadMs(size_t node) const { return head_ms_[node]; }

  // The sum of stages and hops; kNever for a placement that is not allowed.
  double LatencyMs(const std::vector<PlacedStage>& stages) const;
  // The slowest stage or transfer.
  double SlowestMs(const std::vector<PlacedStage>& stages) const;

  // The most pages that a stage of these layers leaves room for on the node.
  uint64_t PagesThatFit(size_t node, uint32_t begin, uint32_t end) const;

  // More pages than this are never granted: their numbers have 32 bits, sums of bytes 64.
  uint64_t MaxPages() const;
  // More pages than this hold no more: as MaxPages, but where every layer has a window.
  uint64_t UsefulPages() const;
  // Whether the node can hold any layer at all.
  bool Useful(size_t node) const;

  // A copy in which one node has more memory, and one that does not count what is free of hosts'.
  PlacementProblem WithMoreMemory(size_t node, uint64_t bytes) const;
  PlacementProblem WithoutHostMemory() const;

 private:
  void AddLinks(const PlannerCluster& cluster, const std::vector<size_t>& members, uint32_t hidden);
  // Of one kind of device.
  struct Weights {
    std::vector<uint64_t> before;  // [l]: of layers 0 to l - 1.
    std::vector<uint64_t> read;    // [l]: what a token reads of layer l.
    uint64_t embed = 0;
    uint64_t head = 0;
    bool equal_layers = true;
    // Of a stage on several devices, besides; and with the head. Of their host's likewise.
    uint64_t besides = 0;
    uint64_t last_besides = 0;
    uint64_t host_besides = 0;
    std::shared_ptr<const Weights> whole = nullptr;  // By which such a stage's time goes.
  };
  void AddWeights(const PlannerModel& model, uint32_t context);
  void AddPages(const PlannerModel& model);
  std::shared_ptr<const Weights> WeightsOnDevices(const PlannerModel& model,
                                                  const NodeDevices& devices,
                                                  const Footprint& footprint, uint32_t context,
                                                  std::shared_ptr<const Weights> whole) const;
  void AddNodeTimes(const PlannerModel& model, uint32_t context);

  uint32_t layers_ = 0;
  bool equal_layers_ = true;
  std::vector<std::shared_ptr<const PlannerNode>> nodes_;
  std::vector<std::shared_ptr<const NodeDevices>> devices_;  // By node; null: it has one.
  std::vector<std::vector<double>> layer_ms_;                // [node][l]: layers 0 to l - 1.
  std::vector<double> embed_ms_;
  std::vector<double> head_ms_;
  std::vector<std::shared_ptr<const Weights>> weights_;  // By node; those of a kind share them.
  std::vector<KvGroupSpec> groups_;
  // [group][l]: of one KV page of those of the layers 0 to l - 1 that are in the group.
  using PageBytes = std::vector<std::vector<uint64_t>>;
  std::vector<std::shared_ptr<const PageBytes>> page_bytes_;  // By node; most share them.
  uint64_t all_page_bytes_ = 0;
  uint32_t max_batch_tokens_ = 0;
  uint32_t sessions_ = 1;
  uint32_t rows_ = 1;
  // What a stage takes besides weights and KV, by node; of the host's too, and with the head or
  // without it.
  struct Overhead {
    uint64_t bytes = 0;
    uint64_t host_bytes = 0;
  };
  struct NodeOverheads {
    Overhead middle;
    Overhead last;
  };
  void AddOverheads(const PlannerModel& model, uint32_t context);
  uint64_t OverheadBytes(size_t node, bool last) const {
    return (last ? overheads_[node].last : overheads_[node].middle).bytes;
  }
  std::vector<NodeOverheads> overheads_;
  std::shared_ptr<const PlannerModel> model_;  // For what hosts stage; null: no host is limited.
  // [from][to], the coordinator last.
  struct AllLinks {
    std::vector<double> hop_ms;
    std::vector<double> transfer_ms;
    double slowest_transfer_ms = 0;
    bool any_cut = false;  // Its hop is kNever, whatever slowest_ms.
  };
  std::shared_ptr<const AllLinks> links_;  // Copies share them.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_PLACEMENT_PROBLEM_H_
