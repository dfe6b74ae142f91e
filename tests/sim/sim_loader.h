// Loads weights in a worker's process, layer by layer: from its cache, from other workers that have
// them, or from the coordinator, as worker/service/stage_loader.h does on threads. And keeps layers
// for when other nodes are lost (--standby), as worker/service/layer_keeper.h.
#ifndef STRATA_TESTS_SIM_SIM_LOADER_H_
#define STRATA_TESTS_SIM_SIM_LOADER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "strata/v1/membership.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/sim_cache.h"
#include "tests/sim/sim_stage.h"

namespace strata::sim {

// What a load of one layer reads.
struct LayerNeeds {
  uint32_t layer = 0;
  std::string key;  // LayerWeightsKey.
  std::vector<std::string> blobs;
};
std::vector<LayerNeeds> NeedsOf(const v1::Load& load);

// Of one process.
class SimLoader {
 public:
  // Runs something in the process: at once, once a stall is over, or never.
  using ReachFn = std::function<void(const std::function<void()>&)>;
  using InUseFn = std::function<SimCache::InUse()>;
  // All outlive it.
  SimLoader(Cluster* cluster, SimCache* cache, ReachFn reach, InUseFn in_use)
      : cluster_(cluster), cache_(cache), reach_(std::move(reach)), in_use_(std::move(in_use)) {}

  struct Loaded {
    absl::Status status;
    std::set<uint32_t> damaged;  // Layers of which the weights are wrong, and nobody noticed.
    uint32_t fetched = 0;        // Blobs.
  };
  // `goes_on` is asked now and then; once it says no, nothing more happens.
  void Load(const WorkerLife& life, const v1::Load& load, std::function<bool()> goes_on,
            std::function<void(const Loaded&)> done);

  // Another worker asks for a blob; `answer` is told whether it comes, and whether it is damaged.
  void Give(const std::string& sha256, const std::function<void(bool given, bool damaged)>& answer);

  // Layers that are kept.
  void OnKeep(const WorkerLife& life, const v1::KeepLayer& message);
  void OnDrop(const v1::DropLayers& message);
  // Lets go of everything.
  void EndLife();
  SimCache::InUse Kept() const;

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  using Place = std::pair<uint64_t, uint32_t>;  // Deployment and layer.

  World& world() const { return *cluster_->world; }
  void After(nanoseconds delay, const std::function<void()>& what) const;
  void NextLayer(const JobPtr& job);
  void NextBlob(const JobPtr& job);
  void Pack(const JobPtr& job);
  void Fetch(const JobPtr& job);
  // The answer to the job's newest question; those to earlier ones are ignored. No `sources`: the
  // blob.
  void OnCoordinator(const JobPtr& job, const std::vector<v1::BlobSource>& sources);
  void AskNextSource(const JobPtr& job);
  void OnSource(const JobPtr& job, const v1::BlobSource& source, bool given, bool damaged);
  void OnBlob(const JobPtr& job, bool damaged, const std::string& from);
  // Runs `what` in the process, unless the job has asked anew since.
  std::function<void(std::function<void()>)> Answer(const JobPtr& job);
  void End(const JobPtr& job, const absl::Status& status);
  void KeepNext();
  void SayKept(const WorkerLife& life, const v1::KeepLayer& message, const Loaded& loaded);

  Cluster* const cluster_;
  SimCache* const cache_;
  const ReachFn reach_;
  const InUseFn in_use_;
  std::set<std::pair<std::string, uint64_t>> liars_;  // Nodes and incarnations.
  std::set<std::string> distrusted_;                  // Blobs that the coordinator is to send.
  struct Waiting {
    WorkerLife life;
    v1::KeepLayer message;
  };
  std::deque<Waiting> waiting_;
  uint64_t keeping_ = 0;               // Counts up: what an earlier one was to keep is not kept.
  bool keeps_ = false;                 // One is at hand.
  std::map<Place, std::string> kept_;  // Their keys.
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_LOADER_H_
