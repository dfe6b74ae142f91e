// The coordinator's process, less its gRPC surface: it holds the owners of nodes, models, requests
// and records together, on one event loop, and is what every deployment needs around it.
#ifndef STRATA_COORDINATOR_SERVICE_PROCESS_COORDINATOR_H_
#define STRATA_COORDINATOR_SERVICE_PROCESS_COORDINATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/rpc/transport.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/deployment/waits.h"
#include "coordinator/keys/key_ring.h"
#include "coordinator/members/control_streams.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/constraints/answer_constraints.h"
#include "coordinator/service/loop/blocking_tasks.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/model_loads.h"
#include "coordinator/service/models/model_moves.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/models/record_writer.h"
#include "coordinator/service/models/replacements.h"
#include "coordinator/service/models/standbys.h"
#include "coordinator/service/nodes/link_measurer.h"
#include "coordinator/service/nodes/step_links.h"
#include "coordinator/service/process/membership.h"
#include "coordinator/service/process/node_admin.h"
#include "coordinator/service/process/status_report.h"
#include "coordinator/service/running/draft_models.h"
#include "coordinator/service/running/live_requests.h"
#include "coordinator/service/running/model_checks.h"
#include "coordinator/store/state_store.h"

namespace strata {

struct CoordinatorOptions {
  ClusterOptions cluster;
  DeploymentOptions deployment;
  LoadDefaults load;
  // How often a link between nodes that failed its measurement is measured again.
  nanoseconds measure_again = std::chrono::seconds(5);
  // A worker that computes one layer of a check, and does not answer for so long, fails it.
  nanoseconds check_timeout = std::chrono::minutes(5);
  ConstraintOptions constraints;
  size_t max_waiting_calls = 4096;  // Of clients, on their way to the loop.
  // What is wrong with what lies outside, such as the disk. Quick, any thread; may be empty.
  std::function<std::vector<v1::Problem>()> outside_problems;
  bool insecure_off_loopback = false;
  bool log_requests = true;  // The end of each, at level info.
};

class Coordinator : private DeploymentHost {
 public:
  // Nothing is owned; all outlive the coordinator.
  Coordinator(const CoordinatorOptions& options, const Transport* transport, const Clock* clock,
              StateStore* store, Models* models, uint64_t term, const std::string& cluster_id);
  ~Coordinator() override;

  // Loads again what the store says should be loaded, once its nodes are there.
  absl::Status Start();
  // Takes no new requests, waits up to `drain_timeout` for those in flight, ends everything.
  void Shutdown(nanoseconds drain_timeout);

  // The owners, each with its rules of threads.
  ModelLoads* loads() { return &loads_; }
  ModelMoves* moves() { return &moves_; }
  ModelChecks* checks() { return &checks_; }
  NodeAdmin* nodes() { return &nodes_; }
  LiveRequests* requests() { return &requests_; }
  AnswerConstraints* constraints() { return constraints_.get(); }
  StatusReport* report() { return &report_; }
  Membership* membership() { return &membership_; }
  StepLinks* links() { return &links_; }
  WeightHolders* weight_holders() { return cluster_.holders(); }
  Models* models() { return models_; }
  Metrics* metrics() { return &metrics_; }
  KeyRing* keys() { return &keys_; }
  // For what waits on other threads than the loop.
  WaitBoard* wait_board() { return &wait_board_; }

  // Any thread, from here.

  // Whether a request would be served.
  bool Healthy() const { return healthy_; }
  // Runs `task` on the loop, later. Always taken until the coordinator has stopped.
  void PostToLoop(std::function<void()> task) { loop_.Post(std::move(task)); }
  // KeyRing's, now.
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view authorization);
  bool log_requests() const { return log_requests_; }
  TimePoint Now() const override { return clock_->Now(); }

 private:
  // DeploymentHost.
  bool SendToNode(const std::string& node, uint64_t incarnation,
                  v1::CoordinatorMessage message) override;
  void OpenLink(StepLinkRequest request,
                std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
                std::function<void(const absl::Status& status)> on_broken) override;
  std::string AddressOf(const std::string& node) const override;
  bool LinksAhead(const std::string& node) const override;
  uint64_t coordinator_incarnation() const override { return links_.incarnation(); }
  void RecordLater(uint64_t deployment) override { records_.SaveDeployment(deployment); }
  void OnPlacement(uint64_t deployment, const v1::Plan& plan, bool placed, bool ready) override;
  void OnPrepared(uint64_t deployment, const v1::Plan* plan) override;
  bool AskDraftModel(uint64_t deployment, GuessRequest request) override {
    return draft_models_.Ask(deployment, std::move(request));
  }
  SequenceNumbers* sequence_numbers() override { return &sequence_numbers_; }

  std::optional<TimePoint> Tick(TimePoint now);
  void MeasureFromHere(const v1::NodeInfo& info);

  const bool log_requests_;
  const Transport* const transport_;
  const Clock* const clock_;
  TimePoint last_tick_ = TimePoint::max();
  StateStore* const store_;
  Models* const models_;
  const uint64_t term_;
  SequenceNumbers sequence_numbers_;
  Metrics metrics_;
  WaitBoard wait_board_;
  BlockingTasks tasks_;
  KeyRing keys_;
  std::atomic<bool> healthy_ = false;

  // On the loop.
  ClusterState cluster_;
  ControlStreams streams_;
  Deployments deployments_;

  // The owners. Each uses those before it, and the loop, which is declared last so that what runs
  // on it finds them all.
  RecordWriter records_;
  StepLinks links_;
  LinkMeasurer measurer_;
  LiveRequests requests_;
  DraftModels draft_models_;
  ModelLoads loads_;
  ModelMoves moves_;
  Replacements replacements_;
  Standbys standbys_;
  ModelChecks checks_;
  NodeAdmin nodes_;
  Membership membership_;
  StatusReport report_;
  const std::unique_ptr<AnswerConstraints> constraints_;

  EventLoop loop_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_PROCESS_COORDINATOR_H_
