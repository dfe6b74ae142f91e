// The loads of a placed model's stages: sent to their workers, watched while they are under way,
// and taken back.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_STAGE_LOADS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_STAGE_LOADS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/deployment/load_watch.h"
#include "coordinator/deployment/placed_model.h"
#include "coordinator/deployment/waits.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// A core: one thread. Nothing waits.
class StageLoads {
 public:
  // `placed` and `host` outlive it.
  StageLoads(const PlacedModel* placed, const DeploymentOptions& options, DeploymentHost* host)
      : placed_(placed), options_(options), host_(host), watch_(options.load_timeout) {}

  // Has every worker of the plan load its stage. The first node that has no control stream, at
  // which it stops; "": all have one.
  std::string Send();
  // Has them unload: nothing is placed on them any more.
  void TakeBack();

  void OnProgress(const std::string& node, const v1::LoadProgress& progress);
  bool AllReady() const { return watch_.AllReady(placed_->plan()); }
  // What workers wait for is not theirs to hasten: they are not silent until now.
  void Excuse() { watch_.Excuse(host_->Now()); }

  // While loads are under way: not ok when a worker has been silent for too long, when the next one
  // will have been, and which are waited for.
  absl::Status Late(TimePoint now) const;
  std::optional<TimePoint> NextLate() const;
  std::vector<Waiting> Waits() const;
  // For people. `loading`: they are under way.
  std::vector<v1::LoadModelProgress::Worker> Describe(bool loading) const {
    return watch_.Describe(placed_->plan(), loading, host_->Now());
  }

 private:
  v1::Load MakeLoad(int stage) const;

  const PlacedModel* const placed_;
  const DeploymentOptions options_;
  DeploymentHost* const host_;
  LoadWatch watch_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_STAGE_LOADS_H_
