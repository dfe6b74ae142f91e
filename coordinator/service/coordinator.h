// The coordinator's process, less its gRPC surface: nodes, models and deployments on one event
// loop. Services call it from their threads; every public call moves to the loop by itself.
#ifndef STRATA_COORDINATOR_SERVICE_COORDINATOR_H_
#define STRATA_COORDINATOR_SERVICE_COORDINATOR_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/keys/key_ring.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/deployment.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/service/membership_service.h"
#include "coordinator/service/models.h"
#include "coordinator/service/waits.h"
#include "coordinator/store/state_store.h"

namespace strata {

struct CoordinatorOptions {
  ClusterOptions cluster;
  DeploymentOptions deployment;
  uint32_t max_batch_tokens = 512;
  uint64_t max_model_context = 8192;  // Default context of a load, at most.
  // How often a link between nodes that failed its measurement is measured again.
  nanoseconds measure_again = std::chrono::seconds(5);
  // A worker that computes one layer of a check, and does not answer for so long, fails it.
  nanoseconds check_timeout = std::chrono::minutes(5);
  size_t max_waiting_calls = 4096;  // Of clients, on their way to the loop.
  // What is wrong with what lies outside, such as the disk. Quick, any thread; may be empty.
  std::function<std::vector<v1::Problem>()> outside_problems;
  bool insecure_off_loopback = false;
  bool log_requests = true;  // The end of each, at level info.
};

class Coordinator : public MembershipHandler, public LinkHandler, public DeploymentHost {
 public:
  // Nothing is owned; all outlive the coordinator.
  Coordinator(CoordinatorOptions options, const Transport* transport, const Clock* clock,
              StateStore* store, Models* models, uint64_t term, std::string cluster_id);
  ~Coordinator() override;

  // Loads again what the store says should be loaded, once its nodes are there.
  absl::Status Start();
  // Takes no new requests, waits up to `drain_timeout` for those in flight, ends everything.
  void Shutdown(nanoseconds drain_timeout);

  // For services; any thread. All say UNAVAILABLE (STOPPING) once it ends, and RESOURCE_EXHAUSTED
  // (OVERLOADED) while too many calls wait.
  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  absl::StatusOr<std::vector<v1::Node>> ListNodes();
  absl::StatusOr<v1::Node> GetNode(const std::string& name);
  absl::StatusOr<v1::Node> SetDraining(const std::string& name, bool draining);
  absl::Status RemoveNode(const std::string& name, bool force);
  // Forgets all nodes that left and that no model has layers on; their names.
  absl::StatusOr<std::vector<std::string>> RemoveGoneNodes();
  absl::StatusOr<std::vector<v1::Model>> ListModels();
  absl::StatusOr<v1::Model> GetModel(const std::string& name);
  // From then on loads of it fail, those under way too; files that are not the user's own go.
  absl::Status RemoveModel(const std::string& name, bool force);
  absl::StatusOr<v1::Plan> PlanModel(const std::string& name, const v1::LoadOptions& options);
  // Places and begins to load; answers with the plan. LoadStatus says how it goes on.
  absl::StatusOr<v1::Plan> LoadModel(const std::string& name, const v1::LoadOptions& options);
  // Progress of the newest load; the error that ended it.
  absl::StatusOr<v1::LoadModelProgress> LoadStatus(const std::string& name);
  absl::Status UnloadModel(const std::string& name, bool force);
  // Waits until it is done or undone; gives up waiting, not resizing, when `gone` says so.
  absl::StatusOr<v1::Plan> ResizeModel(const std::string& name, uint64_t kv_tokens,
                                       const std::function<bool()>& gone);
  // Compares what the loaded model's stages make of a short sequence with what its layers, one
  // after the other, make of it on one worker. Waits; `progress` is called on this thread, and
  // `gone` now and then: the check is ended once it says so. Errors: BAD_TOKENS, those of requests
  // to the model, NODE_NOT_FOUND, NODE_NOT_READY, NO_NODES, NODE_LOST, CANCELLED, or the worker's.
  using CheckProgressFn = std::function<void(const v1::CheckModelProgress&)>;
  absl::StatusOr<v1::ModelCheck> CheckModel(const v1::CheckModelRequest& request,
                                            const CheckProgressFn& progress,
                                            const std::function<bool()>& gone);
  // Requests in flight: all, or those of one API key's id ("": without a key).
  using OfKey = std::optional<std::string>;
  absl::StatusOr<std::vector<v1::Session>> ListSessions(const OfKey& key = std::nullopt);
  // What a scrape asks of the engines; its text is made elsewhere.
  absl::StatusOr<std::vector<ModelSnapshot>> SnapshotModels();
  // Ends a request in flight. FAILED_PRECONDITION (SESSION_AMBIGUOUS) when `key` is not given, and
  // several keys have one of this id.
  absl::Status CancelSession(const std::string& request_id, const OfKey& key = std::nullopt);
  // Ends all that an API key has in flight; how many they were.
  absl::StatusOr<uint64_t> CancelSessionsOf(const std::string& key);

  // Whether a request would be served.
  bool Healthy() const { return healthy_; }

  // Where requests go: the engine that serves `model` now. Runs `use` on the loop with it, or with
  // why there is none.
  struct Serving {
    Engine* engine = nullptr;
    uint64_t deployment = 0;
    std::string numerics_class;
    uint64_t plan_epoch = 0;
    absl::Status problem;  // Why engine is null.
  };
  // The errors of the calls above, without running `use`.
  absl::Status WithEngine(const std::string& model, std::function<void(const Serving&)> use);
  // Of the engine that serves `model` now; or why there is none, and the errors of the calls above.
  absl::StatusOr<PromptLimit> LongestPrompt(const std::string& model);
  // On the loop, before Engine::Submit: no request of any model may have the key of `request` in
  // flight. ALREADY_EXISTS (REQUEST_IN_FLIGHT), or ends the one that has it when `replace`.
  absl::Status ClaimId(const SessionRequest& request, bool replace);
  // On the loop: Engine::Cancel, whatever model the request runs on.
  bool CancelRequest(const std::string& key, const absl::Status& why);
  // On the loop: Engine::SetPaused, likewise.
  void PauseRequest(const std::string& key, bool paused);
  // Runs `task` on the loop, later. Any thread; always taken until the coordinator has stopped.
  void PostToLoop(std::function<void()> task) { loop_.Post(std::move(task)); }
  Models* models() { return models_; }
  Metrics* metrics() { return &metrics_; }
  // For what waits on other threads than the loop. Any thread.
  WaitBoard* wait_board() { return &wait_board_; }
  bool log_requests() const { return options_.log_requests; }
  KeyRing* keys() { return &keys_; }
  // KeyRing's, now.
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization);
  TimePoint Now() const override { return clock_->Now(); }

  // MembershipHandler.
  void OnServing(IoLoop* loop) override { link_loop_ = loop; }
  absl::Status MayJoin(const v1::NodeInfo& info) override;
  absl::StatusOr<v1::Registered> Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                      std::shared_ptr<NodeChannel> channel) override;
  void OnMessage(const std::string& node, uint64_t incarnation, v1::WorkerMessage message,
                 std::function<void()> done) override;
  void OnLeave(const std::string& node, uint64_t incarnation,
               std::shared_ptr<NodeChannel> channel) override;

  // LinkHandler: results of last stages.
  Identity identity() const override { return {"", incarnation_}; }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open,
                                                   const std::string& peer,
                                                   std::shared_ptr<InboundLink> link) override;

  // DeploymentHost.
  bool SendToNode(const std::string& node, uint64_t incarnation,
                  v1::CoordinatorMessage message) override;
  void OpenLink(StepLinkRequest request,
                std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
                std::function<void(const absl::Status& status)> on_broken) override;
  std::string AddressOf(const std::string& node) const override;
  uint64_t coordinator_incarnation() const override { return incarnation_; }
  void RecordLater(uint64_t deployment) override;
  void OnPlacement(uint64_t deployment, const v1::Plan& plan, bool placed, bool ready) override;
  SequenceNumbers* sequence_numbers() override { return &sequence_numbers_; }

 private:
  class ResultsSink;
  class FirstLink;
  struct LayerCheck;
  class LayerCheckSink;
  struct Peer {
    uint64_t incarnation = 0;
    std::shared_ptr<NodeChannel> channel;
    uint64_t nonsense = 0;  // Messages with claims that cannot be.
  };

  // Runs `task` on a thread of its own, for what blocks.
  void RunBlocking(std::function<void()> task);
  std::optional<TimePoint> Tick(TimePoint now);
  void NodeLost(const std::string& node, const std::string& why);
  void Reconcile();
  // Forgets nodes that left long ago.
  void ForgetNodes(TimePoint now);
  // Whether a deployment has, or is to have, layers on it; the model, or "".
  std::string ModelOn(const std::string& node) const;
  void MeasurePeers(const std::string& node);
  void MeasureBrokenLinks();
  void MeasureDoubtfulLinks();
  void MeasureFromHere(const NodeRecord& node);
  void AskToMeasure(const NodeRecord& from, const NodeRecord& to);
  void Handle(const std::string& node, uint64_t incarnation, const v1::WorkerMessage& message);
  Serving ServingOf(const std::string& model);
  absl::Status BeginCheck(const v1::CheckModelRequest& request, uint64_t bytes,
                          const std::shared_ptr<LayerCheck>& check);
  absl::Status ChooseCheckNode(const std::string& name, uint64_t bytes, LayerCheck* check);
  absl::StatusOr<v1::ModelCheck> RunCheck(const std::string& model,
                                          const std::shared_ptr<LayerCheck>& check,
                                          v1::CheckModelProgress* said,
                                          const CheckProgressFn& progress,
                                          const std::function<bool()>& gone);
  absl::StatusOr<v1::LayersComputed> ComputeLayer(LayerCheck& check, uint32_t layer,
                                                  const std::function<bool()>& gone);
  void OnLayersComputed(const std::string& node, uint64_t incarnation,
                        const v1::LayersComputed& computed);
  void LoseChecksOn(const std::string& node);
  Deployment* FindDeployment(uint64_t id) const;
  Deployment* DeploymentOf(const std::string& model) const;
  // On which a request with this key is live; null: on none.
  Deployment* DeploymentWith(const std::string& key) const;
  v1::Model Describe(const ModelRuntime& model) const;
  std::vector<v1::Model> DescribeModels() const;
  std::vector<v1::Session> DescribeSessions(const OfKey& of);
  // The session keys of those of one API key (nullopt: of all) with this request id ("": any).
  std::vector<std::string> FindSessions(const std::string& request_id, const OfKey& of) const;
  std::vector<v1::Problem> Problems();
  void AddDeploymentProblems(ProblemList* problems);
  // All that is waited for.
  std::vector<Waiting> Waits() const;
  absl::StatusOr<v1::LoadOptions> Complete(const ModelRuntime& model,
                                           v1::LoadOptions options) const;
  absl::StatusOr<v1::Plan> MakePlanFor(const ModelRuntime& model, const v1::LoadOptions& options,
                                       PlannerCluster* cluster);
  absl::StatusOr<v1::Plan> Place(std::shared_ptr<const ModelRuntime> model,
                                 const v1::LoadOptions& options, const v1::Plan& plan,
                                 const RotaryBlob& rotary) STRATA_EXCLUDES(changes_);
  // Where a load that may be placed stands.
  struct Placeable {
    std::optional<v1::Plan> loaded;  // It is placed so already.
    uint64_t old = 0;                // The deployment that it takes the place of: held. Or 0.
    uint64_t epoch = 0;              // Of that one.
  };
  absl::StatusOr<Placeable> CheckPlace(const std::shared_ptr<const ModelRuntime>& model,
                                       const v1::LoadOptions& options, const v1::Plan& plan);
  absl::StatusOr<v1::LoadOptions> ResizedOptions(const std::string& name, uint64_t kv_tokens,
                                                 bool* serves);
  absl::Status BeginResize(const std::string& name, const v1::LoadOptions& options,
                           const v1::Plan& plan, const ModelRuntime& model)
      STRATA_EXCLUDES(changes_);
  absl::StatusOr<v1::Plan> AwaitResize(const std::string& name, const std::function<bool()>& gone);
  absl::Status CheckStillFits(const ModelRuntime& model, const v1::LoadOptions& options,
                              const v1::Plan& plan) const;
  // The deployments that have layers on it.
  absl::StatusOr<std::vector<uint64_t>> CheckRemoveNode(const std::string& name, bool force);
  // Unloads a deployment for good; 0: none. An error of the store changes nothing, and it is held
  // no more.
  absl::Status Erase(uint64_t deployment, const absl::Status& why) STRATA_REQUIRES(changes_);
  // Has the nodes and deployments that wait for it written to the store, by another thread.
  void SaveLater();
  void SaveWhatWaits() STRATA_EXCLUDES(changes_);
  struct Unsaved {
    std::vector<StoredNode> nodes;
    std::vector<StoredDeployment> deployments;
    std::vector<std::string> forgotten;  // Nodes.
  };
  std::optional<Unsaved> TakeUnsaved();  // None: nothing waits.
  // False when some of it could not be written: it waits again.
  bool Save(const Unsaved& unsaved) STRATA_REQUIRES(changes_);

  const CoordinatorOptions options_;
  std::atomic<IoLoop*> link_loop_ = nullptr;  // Since OnServing.
  const Transport* const transport_;
  std::map<std::string, CertificateTimes> certificates_;  // Of workers, by name; as they joined.
  const Clock* const clock_;
  StateStore* const store_;
  Models* const models_;
  const uint64_t term_;
  const std::string cluster_id_;
  const uint64_t incarnation_;
  const TimePoint started_;
  SequenceNumbers sequence_numbers_;
  Metrics metrics_;
  WaitBoard wait_board_;
  std::atomic<bool> healthy_ = false;

  // The loop does not wait for a disk. Whoever changes what the store keeps holds this from its
  // check, on the loop, over its write, on its own thread, to its effect, on the loop.
  Mutex changes_;

  // On the loop from here.
  bool draining_ = false;
  TimePoint last_measured_{};
  TimePoint last_doubt_{};
  std::map<uint64_t, uint64_t> epochs_seen_;  // Newest of each deployment that ran.
  ClusterState cluster_;
  std::map<std::string, Peer> peers_;
  std::map<uint64_t, std::unique_ptr<Deployment>> deployments_;
  std::map<uint64_t, std::shared_ptr<LayerCheck>> checks_;  // Under way, by their number.
  uint64_t newest_check_ = 0;
  std::set<std::string> unsaved_nodes_;
  std::set<uint64_t> unsaved_deployments_;
  std::set<std::string> forgotten_nodes_;  // The store may still have them.
  bool saving_ = false;                    // SaveWhatWaits runs.
  std::optional<TimePoint> save_again_;    // The store refused something.
  TimePoint last_forgot_{};
  // Deployments that the store has and that could not be restored, by model.
  struct NotRestored {
    uint64_t id = 0;
    absl::Status why;
  };
  std::map<std::string, NotRestored> not_restored_;

  KeyRing keys_;  // Any thread.

  // Threads of RunBlocking that have not ended yet.
  Mutex blocking_mutex_;
  CondVar blocking_done_;
  int blocking_ STRATA_GUARDED_BY(blocking_mutex_) = 0;

  EventLoop loop_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_COORDINATOR_H_
