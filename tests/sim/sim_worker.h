// A worker less its threads and sockets: registering, the lease, and loading of stages, which it
// hands their messages. It does as worker/service/{control_client,worker_node} do.
#ifndef STRATA_TESTS_SIM_SIM_WORKER_H_
#define STRATA_TESTS_SIM_SIM_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/frame.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/sim_stage.h"

namespace strata::sim {

class SimWorker {
 public:
  SimWorker(Cluster* cluster, Machine machine);

  const std::string& name() const { return name_; }
  bool up() const { return up_; }
  // New with every attempt to register. What arrives for another one is not for this life.
  // A frame with kPoisonToken is about to be computed by `stage`: whether that ends otherwise.
  bool MeetsPoison(SimStage* stage);

  uint64_t incarnation() const { return incarnation_; }

  // The process starts, and registers.
  void Start();
  // The process or the machine stops; a `silent` end breaks no connection.
  void Stop(bool silent);
  // Nothing runs until then, SIGSTOP's way: what arrives waits.
  void Stall(TimePoint until);
  void BreakControlStream();

  // Faults of stage and device; false where there is nothing to damage.
  bool FlipBit(uint64_t random);
  bool FailBackend();
  bool PoisonStage(uint64_t random);
  // From now on it fails at kPoisonToken, in this life and all others.
  bool Poison(FaultKind kind);

  // What arrives, each for one incarnation. On the control stream, and its end:
  void OnMessage(uint64_t incarnation, const v1::CoordinatorMessage& message);
  void OnStreamEnded(uint64_t incarnation, const absl::Status& why);
  // To AskWhoAnswers.
  void OnCoordinatorAnswers(uint64_t incarnation, uint64_t term);
  // The stage before, or the coordinator, wants to open its link; `answer` is told whether it may.
  void OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer);
  void OnFrame(uint64_t incarnation, const std::shared_ptr<const StepMessage>& frame);
  void OnGarbledFrame(uint64_t incarnation, uint64_t deployment, uint64_t epoch);

  // Sequences and pages that the stage of a deployment holds; of all stages when `deployment` is 0.
  size_t sequences(uint64_t deployment) const;
  uint64_t pages_in_use(uint64_t deployment) const;

 private:
  World& world() const { return *cluster_->world; }
  // Runs `what` in this life: at once, once a stall is over, or never.
  void Reach(uint64_t incarnation, const std::function<void()>& what);
  void After(nanoseconds delay, const std::function<void()>& what);
  WorkerLife life() const { return {cluster_, machine_, name_, incarnation_}; }
  // To the coordinator, from this life.
  void Say(v1::WorkerMessage message) const { life().Say(std::move(message)); }
  SimStage* Find(uint64_t deployment);

  // Each in the life that the message was for.
  void OnRegistered(const v1::Registered& registered);
  void OnLeaseRenewed(uint64_t term);
  void OnLoad(const v1::Load& load);
  void OnLoaded(const v1::Load& load);
  void OnUnload(uint64_t deployment);
  void OnFence(const v1::Fence& fence);

  void Register();
  void EndLife(const std::string& why);
  void Beat();
  void AskWhoAnswers();

  Cluster* const cluster_;
  const Machine machine_;
  const std::string name_;
  bool up_ = false;
  uint64_t incarnation_ = 0;
  TimePoint stalled_until_{0};
  bool registered_ = false;
  uint64_t term_ = 0;
  nanoseconds lease_{0};  // As it was told; and how often to speak.
  nanoseconds heartbeat_{0};
  TimePoint lease_end_{0};
  std::optional<TimePoint> answers_since_;  // Since the lease lapsed.
  std::optional<FaultKind> poison_;
  std::map<uint64_t, uint64_t> loading_;  // Epochs of Loads that go on, by deployment.
  std::map<uint64_t, SimStage> stages_;   // By deployment.
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_WORKER_H_
