// The coordinator's process, less its threads, sockets and disk: around the shipped cores of
// members and deployments it carries messages over the simulated network, lets time pass, and does
// what clients and an operator ask for.
#ifndef STRATA_TESTS_SIM_SIM_COORDINATOR_H_
#define STRATA_TESTS_SIM_SIM_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/cluster/weight_holders.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/engine/engine.h"
#include "coordinator/members/node_channel.h"
#include "coordinator/store/state_store.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/random.h"

namespace strata::sim {

class SimCoordinator : private DeploymentHost {
 public:
  explicit SimCoordinator(Cluster* cluster);
  ~SimCoordinator() override;

  bool up() const { return life_ != nullptr; }
  // The newest one's incarnation.
  uint64_t life() const { return incarnation_; }
  // Null while there is none.
  const Deployment* deployment() const;

  // The process starts, in a new term, and loads what was loaded.
  void Start();
  // A `silent` end breaks no connection.
  void Stop(bool silent);

  // The operator.
  void LoadModel(const v1::Plan& plan);  // As a new deployment; replaces one that is loaded.
  void UnloadModel();
  bool ResizeModel(uint64_t kv_pages);
  bool MoveModel(uint64_t random);  // To workers that are there, as drawn.
  // Of the kinds that a Meddler knows; or kFailLoad: the next worker that says to have loaded is
  // heard to say that it cannot.
  void Arm(const Fault& fault);
  // What this life of a worker says from now on, it says as one that was told to stop.
  void SetLeaving(Machine machine, uint64_t incarnation) { leaving_[machine] = incarnation; }

  // From now on nothing moves because something better has come.
  void Calm() { calm_ = true; }
  // Of the layers that are kept for losses: whether all is said to be, and what.
  bool KeepsAll() const;
  std::vector<v1::StandbyLayers> Kept() const;

  // Clients. UNAVAILABLE where nobody is there to serve.
  absl::Status Submit(SessionRequest request, std::shared_ptr<SessionSink> sink);
  bool Cancel(const std::string& key, const absl::Status& why);

  // Messages that arrive. Those of a worker's life that has ended are ignored.
  void OnMessage(Machine machine, uint64_t incarnation, const v1::WorkerMessage& message);
  void OnStreamEnded(Machine machine, uint64_t incarnation);
  void OnWhoAnswers(Machine machine, uint64_t incarnation);
  // A worker asks for a blob: `answer` is told at the worker who has it; nobody: there it is.
  void OnBlobAsked(const WeightHolders::Ask& ask,
                   const std::function<void(const std::vector<v1::BlobSource>&)>& answer);
  // To one life of the coordinator.
  void OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer);
  void OnResult(uint64_t incarnation, const std::shared_ptr<const ResultMessage>& result);
  void OnGarbledResult(uint64_t incarnation, uint64_t deployment, uint64_t epoch);

 private:
  struct Life;

  // DeploymentHost.
  bool SendToNode(const std::string& node, uint64_t incarnation,
                  v1::CoordinatorMessage message) override;
  TimePoint Now() const override { return world().now(); }
  void OpenLink(StepLinkRequest request,
                std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
                std::function<void(const absl::Status& status)> on_broken) override;
  std::string AddressOf(const std::string& node) const override { return node; }
  bool LinksAhead(const std::string&) const override { return true; }
  uint64_t coordinator_incarnation() const override { return incarnation_; }
  void RecordLater(uint64_t deployment) override;
  void OnPlacement(uint64_t, const v1::Plan&, bool, bool) override {}
  void OnPrepared(uint64_t, const v1::Plan*) override {}
  SequenceNumbers* sequence_numbers() override;
  bool AskDraftModel(uint64_t deployment, GuessRequest request) override;

  World& world() const { return *cluster_->world; }
  // Runs `what` and then what the event loop runs after everything, unless this life has ended.
  void Turn(uint64_t incarnation, const std::function<void()>& what);
  void TickAgain();
  void Tick(bool by_time);
  void SearchNodes(uint64_t id);
  std::optional<v1::Plan> PlanByCaches(uint64_t id) const;
  std::optional<v1::Plan> PlanInTheirPlace(uint64_t id) const;
  void SearchBetter(uint64_t id);
  void OnPlanned(uint64_t id, std::optional<v1::Plan> plan);
  absl::Status Move(Deployment* deployment, v1::Plan plan, Random* random);
  void Look(bool by_time);
  void ScheduleWake();

  std::shared_ptr<NodeChannel> OpenChannel(Machine machine, uint64_t incarnation);
  void OnRegister(Machine machine, const v1::NodeInfo& info);
  void OnLost(const std::string& node);
  // What the worker is heard to say.
  v1::WorkerMessage Heard(Machine machine, uint64_t incarnation, v1::WorkerMessage message);
  void Restore();
  void Record(uint64_t deployment);
  Deployment* Model() const;
  std::unique_ptr<Deployment> MakeDeployment(uint64_t id, v1::Plan plan,
                                             const v1::LoadOptions& options);

  Cluster* const cluster_;
  const std::shared_ptr<const DeployedModel> model_;
  const std::unique_ptr<StateStore> store_;  // Survives the process.
  uint64_t incarnation_ = 0;
  std::unique_ptr<Life> life_;
  int loads_to_fail_ = 0;
  bool calm_ = false;
  std::map<Machine, uint64_t> leaving_;  // Incarnations.
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_COORDINATOR_H_
