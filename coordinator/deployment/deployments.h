// The deployments of the process: by number, by model, by node and by request; and those that a
// start could not restore.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENTS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployment.h"

namespace strata {

// One thread, the event loop's. Nothing waits.
class Deployments {
 public:
  using ById = std::map<uint64_t, std::unique_ptr<Deployment>>;
  const ById& all() const { return by_id_; }

  // Null when there is none.
  Deployment* Find(uint64_t id) const;
  Deployment* OfModel(const std::string& model) const;
  // On which a request with this key is live.
  Deployment* WithRequest(const std::string& key) const;
  // Those that have, or are to have, layers on the node; and the model of one of them, or "".
  std::vector<uint64_t> On(const std::string& node) const;
  std::string ModelOn(const std::string& node) const;

  void Add(std::unique_ptr<Deployment> deployment);
  // Ends one: its requests fail with `why`, its workers unload.
  void Unload(uint64_t id, const absl::Status& why);
  void UnloadAll(const absl::Status& why);
  // Those that are to be placed on other nodes by now: Deployment::WantsPlacement.
  std::vector<uint64_t> WantPlacement(TimePoint now) const;
  // Those for which a faster placement is to be looked for by now: Deployment::WantsBetter.
  std::vector<uint64_t> WantBetter(TimePoint now) const;
  // Loads what waits for nodes that are all back; says of the others which they wait for.
  void LoadWhatWaits(const ClusterState& cluster);

  // A node's lot, told to all that have layers on it.
  void OnNodeLost(const std::string& node);
  void OnNodeLeaving(const std::string& node);
  void OnNodeJoined(const std::string& node);
  void OnNodeDraining(const std::string& node, bool draining);

  // Time passes for all of them. `reading`: the weights that workers wait for are being read again.
  // Those whose load is due again wait for their nodes from here on: true when there are such.
  bool Tick(TimePoint now, bool reading);
  // The process stood still until now: no pipeline is late for what it could not read.
  void ExcusePause(TimePoint now);
  std::optional<TimePoint> NextWake() const;
  // Whether one would serve a request.
  bool AnyServes() const;

  // The process ends: no deployment begins, and no request. For good.
  void StopAdmitting(const absl::Status& why);
  bool stopping() const { return stopping_; }
  size_t live_requests() const;

  // What the store has and a start could not restore, by model.
  struct NotRestored {
    uint64_t id = 0;
    absl::Status why;
  };
  const std::map<std::string, NotRestored>& not_restored() const { return not_restored_; }
  void AddNotRestored(const std::string& model, uint64_t id, const absl::Status& why);
  // The number of the model's, or 0.
  uint64_t NotRestoredOf(const std::string& model) const;
  // Its record is gone.
  void ForgetNotRestored(uint64_t id);

 private:
  ById by_id_;
  std::map<std::string, NotRestored> not_restored_;
  bool stopping_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENTS_H_
