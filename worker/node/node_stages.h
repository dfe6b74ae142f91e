// The stages of a worker: which deployments' are being loaded, stand, or are being taken off. A
// deployment has one that stands, and while it moves another one beside that.
#ifndef STRATA_WORKER_NODE_NODE_STAGES_H_
#define STRATA_WORKER_NODE_NODE_STAGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// A stage from its Load to its end; never given twice. 0: none.
using StageId = uint64_t;

// What stages need of the process around them. Calls come from inside NodeStages, must not wait,
// and must not call it.
class NodeHost {
 public:
  virtual ~NodeHost() = default;
  // To the coordinator, in the life that is going on.
  virtual void Say(v1::WorkerMessage message) = 0;
  // A Load came; BeginLoad or TakeOff follows. `before`: the stage whose weights it takes over once
  // that is gone; 0: it has to load them.
  virtual void Add(StageId stage, const v1::Load& load, StageId before) = 0;
  // Loads it; NodeStages::OnLoaded follows, later.
  virtual void BeginLoad(StageId stage) = 0;
  // Ends loading and computing, and frees what it has; NodeStages::OnGone follows, later.
  virtual void TakeOff(StageId stage) = 0;
  // Ends an epoch, or opens links ahead of that: Fence.ahead.
  virtual void Fence(StageId stage, const v1::Fence& fence) = 0;
};

// One thread at a time.
class NodeStages {
 public:
  // `host` outlives it.
  NodeStages(std::string node, NodeHost* host);

  // A life under `incarnation`. The one before has ended.
  void BeginLife(uint64_t incarnation);
  // Takes every stage off. What they have to say is for nobody.
  void EndLife();
  bool alive() const { return alive_; }
  // Of the newest life.
  uint64_t incarnation() const { return incarnation_; }

  // Heartbeats ask from now on for what is loaded to be taken off, once requests have ended.
  void Leave() { leaving_ = true; }
  // With what stages that are gone discarded. Loaded ones are the host's to add.
  v1::Heartbeat Heartbeat(uint64_t term) const;
  // Whether nothing is loaded, being loaded, or being taken off.
  bool Empty() const { return placed_.empty() && retiring_ == 0; }

  // Load, Unload and Fence; false for others. Ignored between lives.
  bool OnMessage(const v1::CoordinatorMessage& message);

  // `progress`: how far loading is; nothing is said once it has ended, and nothing twice.
  void OnProgress(StageId stage, const v1::LoadProgress& progress);
  // Loading has ended with `status`. `bytes`: what the stage takes from now on.
  void OnLoaded(StageId stage, v1::LoadProgress progress, const absl::Status& status,
                uint64_t bytes);
  // It is taken off. `frames_discarded`: while it was here.
  void OnGone(StageId stage, uint64_t frames_discarded);

  // Whom a link that comes in reaches: NOT_FOUND (NO_DEPLOYMENT), FAILED_PRECONDITION
  // (EPOCH_NOT_LOADED).
  absl::StatusOr<StageId> Reaches(const v1::LinkOpen& open) const;
  // The loaded stage of a deployment that stands, or 0.
  StageId Loaded(uint64_t deployment) const;
  // The same whose Load had this epoch, standing, beside another, or giving its KV away.
  StageId LoadedBy(uint64_t deployment, uint64_t loaded_epoch) const;
  // Its KV is asked for: when another takes its place it is kept until its own Unload.
  StageId GivesKv(uint64_t deployment, uint64_t loaded_epoch);
  // Those that are being loaded or stand, by deployment; after that, one beside it, and one whose
  // place it has taken and that gives its KV away.
  std::vector<StageId> Placed() const;
  // Nobody waits for it any more.
  bool Retired(StageId stage) const;

  // Memory that a stage has set aside or takes: of the device, or of the host beside it.
  void SetBytes(StageId stage, uint64_t bytes);
  void SetHostBytes(StageId stage, uint64_t bytes);
  // Of all that are placed but this one.
  uint64_t BytesBeside(StageId stage) const;
  uint64_t HostBytesBeside(StageId stage) const;

 private:
  enum class State { kWaiting, kLoading, kLoaded, kFailed };
  struct Stage {
    v1::Load load;
    uint64_t incarnation = 0;  // Of the life that it is of.
    State state = State::kWaiting;
    bool retired = false;
    bool answers = false;  // UnloadDone, once it is gone.
    bool gives = false;    // Somebody asked for its KV.
    std::string reported;
    uint64_t bytes = 0;
    uint64_t host_bytes = 0;
    uint64_t ahead = 0;  // The epoch of links that are opened ahead; 0: none were.
  };

  void OnLoad(const v1::Load& load);
  // A Load beside the deployment's stage that stands.
  void OnLoadBeside(StageId id, const v1::Load& load);
  void OnUnload(const v1::Unload& unload);
  void OnFence(const v1::Fence& fence);
  // The loaded stage whose links the fence wants opened ahead; 0: there is none.
  StageId LinkedAhead(const v1::Fence& fence) const;
  void Retire(StageId id, bool answers);
  // Takes off what is loaded beside the deployment's stage, if anything is.
  void RetireBeside(uint64_t deployment);
  // And what gives its KV away, if anything does.
  void RetireGiving(uint64_t deployment);
  void RetireOf(uint64_t deployment, std::map<uint64_t, StageId>* stages);
  // Has what is loaded beside the deployment's stage take its place, if the fence wants that.
  void TakePlace(const v1::Fence& fence);
  // What is being taken off frees its memory first.
  void BeginWaiting();
  void Say(const Stage& stage, v1::WorkerMessage message);
  void SayUnloaded(uint64_t deployment);
  void SayFailed(StageId id, const absl::Status& status, v1::LoadProgress progress);
  absl::Status NotLoaded(uint64_t deployment) const;

  const std::string node_;
  NodeHost* const host_;
  bool alive_ = false;
  bool leaving_ = false;
  uint64_t incarnation_ = 0;
  StageId newest_ = 0;
  std::map<StageId, Stage> stages_;
  std::map<uint64_t, StageId> placed_;  // By deployment.
  std::map<uint64_t, StageId> beside_;  // Of these; by deployment.
  std::map<uint64_t, StageId> giving_;  // KV away; another took their places. By deployment.
  uint64_t retiring_ = 0;
  uint64_t frames_discarded_ = 0;  // Of stages that are gone.
};

}  // namespace strata

#endif  // STRATA_WORKER_NODE_NODE_STAGES_H_
