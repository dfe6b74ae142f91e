// A model under a plan: loads it on its workers, fences and links them, and runs the real engine
// over them. It does as coordinator/deployment does, and watches the engine after every
// call.
#ifndef STRATA_TESTS_SIM_SIM_DEPLOYMENT_H_
#define STRATA_TESTS_SIM_SIM_DEPLOYMENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/meddler.h"

namespace strata::sim {

// Where a model's layers are.
struct SimPlan {
  std::vector<Machine> machines;       // By stage.
  std::vector<uint32_t> first_layers;  // By stage, and the number of layers.
};
// Any stages of the scenario's number on any of its workers.
SimPlan DrawPlan(const Scenario& scenario, Random* random);

// What survives the coordinator.
struct SimStore {
  uint64_t term = 0;
  uint64_t deployment = 0;
  uint64_t epoch = 0;   // Newest that was used.
  bool wanted = false;  // The model is to be loaded.
  uint64_t kv_pages = 0;
  SimPlan plan;
};

class SimDeployment : public EngineHost {
 public:
  // All outlives it. `life` is the coordinator's.
  SimDeployment(Cluster* cluster, SimStore* store, SequenceNumbers* sequence_numbers,
                uint64_t life);
  ~SimDeployment() override;

  // Begins (again) on its machines, whose incarnations are these.
  void Load(const std::map<Machine, uint64_t>& incarnations);
  // Sessions fail with `why`, workers unload.
  void Unload(const absl::Status& why);
  // Other KV under running sessions; false if they do not allow it.
  bool Resize(uint64_t kv_pages);

  bool loaded() const { return state_ != State::kWaiting; }
  // Takes requests.
  bool ready() const { return state_ == State::kReady || state_ == State::kResizing; }
  // What must hold, what the rules did, and when to wake the engine: after every call of it, and
  // from time to time.
  void Watch();
  // Nothing runs, and the ledger says that every page is free, or cached.
  bool Idle() const;
  uint64_t id() const { return store_->deployment; }

  absl::Status Submit(SessionRequest request, std::shared_ptr<SessionSink> sink);
  bool Cancel(const std::string& key, const absl::Status& why);

  void OnNodeLost(Machine machine);
  void OnLoadProgress(Machine machine, const v1::LoadProgress& progress);
  void OnFenceAck(Machine machine, const v1::FenceAck& ack);
  void OnLinkFault(uint64_t epoch, const absl::Status& status);
  bool AcceptsResults(const v1::LinkOpen& open) const;
  void OnResult(const ResultMessage& result);
  void Arm(const Fault& fault) { meddler_.Arm(fault); }

  // EngineHost.
  void SendStep(StepMessage step) override;
  void SendFence(uint64_t epoch) override;
  std::vector<std::string> UnfencedNodes() const override;

 private:
  enum class State { kWaiting, kLoading, kReady, kResizing };

  World& world() const { return *cluster_->world; }
  uint32_t stage_count() const { return static_cast<uint32_t>(store_->plan.machines.size()); }
  bool Uses(Machine machine) const;
  v1::Load LoadOf(uint32_t stage) const;
  void Say(Machine machine, v1::CoordinatorMessage message);
  std::vector<EngineStage> EngineStages(uint64_t kv_pages) const;
  void SendLoads();
  void StartEngine();
  void StopEngine(const absl::Status& why);
  void Fail(const absl::Status& why);
  void TellWorkersToUnload();
  void OpenFirstLink(uint64_t epoch, TimePoint deadline);
  void OnFirstLink(uint64_t epoch, bool accepted, TimePoint deadline);

  void CheckMemory(const EngineSnapshot& snapshot);
  void CheckPages(const EngineSnapshot& snapshot);
  void CountWaiting(const EngineSnapshot& snapshot);
  void CheckIdle(const EngineSnapshot& snapshot);
  void CountWork(const EngineCounters& counters);
  void ScheduleWake();

  Cluster* const cluster_;
  SimStore* const store_;
  SequenceNumbers* const sequence_numbers_;
  const uint64_t life_;
  State state_ = State::kWaiting;
  bool awaiting_ = false;  // The engine's sessions wait for a lost machine.
  std::map<Machine, uint64_t> incarnations_;
  std::set<Machine> loading_;
  std::set<Machine> unfenced_;
  uint64_t fence_epoch_ = 0;
  uint64_t first_link_epoch_ = 0;  // Of the open link to the first stage.
  std::unique_ptr<Engine> engine_;
  Meddler meddler_;
  EngineCounters seen_;
  bool was_down_ = false;
  std::optional<TimePoint> wake_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_DEPLOYMENT_H_
