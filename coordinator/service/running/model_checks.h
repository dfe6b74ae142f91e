// `strata model check` under way: a sequence through a model's stages, the same layer by layer on
// one worker, and where they differ. What is computed and compared is layer_check.h's.
#ifndef STRATA_COORDINATOR_SERVICE_RUNNING_MODEL_CHECKS_H_
#define STRATA_COORDINATOR_SERVICE_RUNNING_MODEL_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/deployment/waits.h"
#include "coordinator/members/control_streams.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/running/live_requests.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

class ModelChecks {
 public:
  // A worker that does not answer about a layer for `timeout` fails the check. Nothing is owned;
  // all outlive this. `cluster`, `deployments` and `streams` are the loop's.
  ModelChecks(nanoseconds timeout, const Clock* clock, EventLoop* loop, const Models* models,
              const ClusterState* cluster, const Deployments* deployments, ControlStreams* streams,
              LiveRequests* requests, WaitBoard* wait_board)
      : timeout_(timeout),
        clock_(clock),
        loop_(loop),
        models_(models),
        cluster_(cluster),
        deployments_(deployments),
        streams_(streams),
        requests_(requests),
        wait_board_(wait_board) {}

  // Compares what the loaded model's stages make of a short sequence with what its layers, one
  // after the other, make of it on one worker; or on one of each kind where the plan mixes them.
  // A named node of a kind that the plan has not computes each layer besides, to be compared by
  // ToleranceOf. Waits, on any thread but the loop's; `progress` is
  // called on this thread, and `gone` now and then: the check is ended once it says so. Errors:
  // BAD_TOKENS, those of requests to the model, NODE_NOT_FOUND, NODE_NOT_READY, NO_NODES,
  // NODE_LOST, CHECK_TIMEOUT, CANCELLED, or the worker's.
  using ProgressFn = std::function<void(const v1::CheckModelProgress&)>;
  absl::StatusOr<v1::ModelCheck> Check(const v1::CheckModelRequest& request,
                                       const ProgressFn& progress,
                                       const std::function<bool()>& gone);

  // On the loop: a worker computed a layer; a node is lost.
  void OnLayersComputed(const std::string& node, uint64_t incarnation,
                        const v1::LayersComputed& computed);
  void OnNodeLost(const std::string& node);

 private:
  struct UnderWay;
  class StagesSink;

  // On the loop.
  absl::Status Begin(const v1::CheckModelRequest& request, uint64_t bytes,
                     const std::shared_ptr<UnderWay>& check);
  absl::Status ChooseNodes(const std::string& name, uint64_t bytes, UnderWay* check) const;
  // Of rows that travel between workers there are no more than a message holds.
  static absl::Status FitTokens(const v1::CheckModelRequest& request, UnderWay* check);
  absl::Status TakeNamed(const std::string& name, UnderWay* check) const;
  // On the thread of Check.
  absl::Status AwaitStages(UnderWay& check, const std::function<bool()>& gone);
  absl::StatusOr<v1::ModelCheck> Run(const std::shared_ptr<UnderWay>& check,
                                     v1::CheckModelProgress* said, const ProgressFn& progress,
                                     const std::function<bool()>& gone);
  struct Asked;
  absl::StatusOr<v1::LayersComputed> ComputeLayer(UnderWay& check, const Asked& asked,
                                                  const std::function<bool()>& gone);
  absl::Status SendLayer(const UnderWay& check, const Asked& asked);
  void EndOn(const UnderWay& check);

  const nanoseconds timeout_;
  const Clock* const clock_;
  EventLoop* const loop_;
  const Models* const models_;
  const ClusterState* const cluster_;
  const Deployments* const deployments_;
  ControlStreams* const streams_;
  LiveRequests* const requests_;
  WaitBoard* const wait_board_;

  // On the loop.
  std::map<uint64_t, std::shared_ptr<UnderWay>> checks_;  // By their number.
  uint64_t newest_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_RUNNING_MODEL_CHECKS_H_
