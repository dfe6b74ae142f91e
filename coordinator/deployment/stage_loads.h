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
  // Of which placement: the one that stands, or PlacedModel::next, of which nothing is asked while
  // there is none. The stages of that which stay count as loaded.
  enum class Of { kStanding, kNext };

  // `placed` and `host` outlive it.
  StageLoads(Of of, const PlacedModel* placed, const DeploymentOptions& options,
             DeploymentHost* host)
      : of_(of), placed_(placed), options_(options), host_(host), watch_(options.load_timeout) {}

  // Has every worker of the plan load its stage. The first node that has no control stream, at
  // which it stops; "": all have one.
  std::string Send();
  // Has them unload: nothing of the plan is placed on them any more.
  void TakeBack();
  // The placement that `next` had loaded is the one that stands; what it took the place of is to be
  // unloaded.
  void TakeOver(const StageLoads& next);
  // Has the worker unload the stage whose Load had this epoch; 0: whichever it has.
  void Unload(const v1::PlanRank& rank, uint64_t loaded_epoch) const;

  void OnProgress(const std::string& node, const v1::LoadProgress& progress);
  bool AllReady() const { return watch_.AllReady(plan()); }
  // What workers wait for is not theirs to hasten: they are not silent until now.
  void Excuse() { watch_.Excuse(host_->Now()); }

  // While loads are under way: not ok when a worker has been silent for too long, when the next one
  // will have been, and which are waited for.
  absl::Status Late(TimePoint now) const;
  std::optional<TimePoint> NextLate() const;
  std::vector<Waiting> Waits() const;
  // For people. `loading`: they are under way.
  std::vector<v1::LoadModelProgress::Worker> Describe(bool loading) const {
    return watch_.Describe(plan(), loading, host_->Now());
  }

 private:
  const v1::Plan& plan() const { return of_ == Of::kNext ? *placed_->next() : placed_->plan(); }
  bool Stays(int stage) const;
  // Of a stage of several ranks, less which of them the worker has.
  v1::Load MakeLoad(int stage) const;
  // To the workers of all its ranks; as Send.
  std::string SendStage(int stage);

  const Of of_;
  const PlacedModel* const placed_;
  const DeploymentOptions options_;
  DeploymentHost* const host_;
  LoadWatch watch_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_STAGE_LOADS_H_
