// What the coordinator says of itself: `strata status`, its models, what is wrong, what is waited
// for, and what a scrape asks of the engines. It changes nothing.
#ifndef STRATA_COORDINATOR_SERVICE_PROCESS_STATUS_REPORT_H_
#define STRATA_COORDINATOR_SERVICE_PROCESS_STATUS_REPORT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/rpc/transport.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/cluster/problem_list.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/deployment/waits.h"
#include "coordinator/keys/key_ring.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/models/standbys.h"
#include "coordinator/service/process/membership.h"
#include "coordinator/service/running/live_requests.h"
#include "strata/v1/admin.pb.h"

namespace strata {

// Any thread but the loop's. All say UNAVAILABLE (STOPPING) once the coordinator ends, and
// RESOURCE_EXHAUSTED (OVERLOADED) while too many calls wait, but where it says otherwise.
class StatusReport {
 public:
  struct Options {
    uint64_t term = 0;
    // What is wrong with what lies outside, such as the disk. Quick, any thread; may be empty.
    std::function<std::vector<v1::Problem>()> outside_problems;
    bool insecure_off_loopback = false;
  };
  // What is reported on. Nothing is owned; all outlive the report. Cluster, deployments, standbys,
  // membership and requests are looked at on the loop.
  struct Parts {
    const Transport* transport = nullptr;
    const Models* models = nullptr;
    const ClusterState* cluster = nullptr;
    const Deployments* deployments = nullptr;
    const Standbys* standbys = nullptr;
    const Membership* membership = nullptr;
    const LiveRequests* requests = nullptr;
    const WaitBoard* wait_board = nullptr;
    KeyRing* keys = nullptr;
  };
  StatusReport(Options options, const Clock* clock, EventLoop* loop, const Parts& parts)
      : options_(std::move(options)),
        clock_(clock),
        loop_(loop),
        of_(parts),
        started_(clock->Now()) {}

  absl::StatusOr<v1::GetStatusResponse> Status();
  absl::StatusOr<std::vector<v1::Model>> ListModels();
  // With its facts, which take a while.
  absl::StatusOr<v1::Model> GetModel(const std::string& name);
  // What a scrape asks of the engines; its text is made elsewhere. Never OVERLOADED.
  absl::StatusOr<std::vector<ModelSnapshot>> SnapshotModels();

  // On the loop, from here.

  // One line for people: models, nodes and requests.
  std::string Summary() const;

 private:
  v1::Model DescribeModel(const ModelRuntime& model) const;
  std::vector<v1::Model> DescribeModels() const;
  void AddUse(const Deployment& deployment, v1::GetStatusResponse* out) const;
  // All that is waited for.
  std::vector<Waiting> Waits() const;
  std::vector<v1::Problem> Problems() const;
  void AddDeploymentProblems(ProblemList* problems) const;
  void AddIdleNodes(ProblemList* problems) const;
  void AddCertificates(ProblemList* problems) const;

  const Options options_;
  const Clock* const clock_;
  EventLoop* const loop_;
  const Parts of_;
  const TimePoint started_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_PROCESS_STATUS_REPORT_H_
