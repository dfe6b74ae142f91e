// How far the workers of a deployment are with its newest load, and which of them is silent.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_LOAD_WATCH_H_
#define STRATA_COORDINATOR_DEPLOYMENT_LOAD_WATCH_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "coordinator/deployment/waits.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// What one worker loads: a rank of a stage. Both are the plan's.
struct LoadPart {
  const v1::PlanStage* stage = nullptr;
  const v1::PlanRank* rank = nullptr;
};
std::vector<LoadPart> LoadPartsOf(const v1::Plan& plan);

// A core: time is handed in, one thread.
class LoadWatch {
 public:
  // A worker that gets no further for `limit` is late; 0: never.
  explicit LoadWatch(nanoseconds limit) : limit_(limit) {}

  // Loads were sent: nothing is known of any worker yet.
  void Begin(TimePoint now);
  // What workers wait for is not theirs to hasten: they are not silent until now.
  void Excuse(TimePoint now);
  void OnProgress(const std::string& node, const v1::LoadProgress& progress, TimePoint now);

  // Whether the part's worker, or all of the plan's, have loaded.
  bool Ready(const LoadPart& part) const;
  bool AllReady(const v1::Plan& plan) const;
  // Since when the part's worker has not got further with its load.
  TimePoint SilentSince(const LoadPart& part) const;
  // The part whose worker is silent longest, of those that are not ready; none: all are.
  std::optional<LoadPart> Slowest(const v1::Plan& plan) const;

  // For people. `loading`: the load is under way, so that silence counts.
  std::vector<v1::LoadModelProgress::Worker> Describe(const v1::Plan& plan, bool loading,
                                                      TimePoint now) const;
  Waiting WaitFor(const LoadPart& part, const std::string& model) const;

 private:
  struct Worker {
    v1::LoadProgress progress;
    TimePoint advanced{};  // When it last got further.
    bool ready = false;
  };
  // Null: it has said nothing.
  const Worker* Find(const LoadPart& part) const;

  nanoseconds limit_;
  TimePoint sent_{};
  std::map<std::string, Worker> workers_;  // By node.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_LOAD_WATCH_H_
