// The host of a worker's decisions: carries the messages of Membership and NodeStages, and decides
// when loads end. As worker/service/{control_client,worker_node}.h, less their threads.
#ifndef STRATA_TESTS_SIM_SIM_WORKER_H_
#define STRATA_TESTS_SIM_SIM_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/frame.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/rank_wires.h"
#include "tests/sim/sim_cache.h"
#include "tests/sim/sim_loader.h"
#include "tests/sim/sim_seat.h"
#include "tests/sim/sim_stage.h"
#include "worker/node/membership.h"
#include "worker/node/node_stages.h"
#include "worker/ranks/rank_channels.h"

namespace strata::sim {

class SimWorker : private NodeHost {
 public:
  SimWorker(Cluster* cluster, Machine machine);

  const std::string& name() const { return name_; }
  bool up() const { return up_; }
  // A frame with kPoisonToken is about to be computed by `stage`: whether that ends otherwise.
  bool MeetsPoison(SimStage* stage);

  // New with every attempt to register; 0 between lives. What arrives for another one is not for
  // this life.
  uint64_t incarnation() const { return up_ && stages_->alive() ? incarnation_ : 0; }

  // The process starts, and registers.
  void Start();
  // The process or the machine stops; a `silent` end breaks no connection.
  void Stop(bool silent);
  // Nothing runs until then, SIGSTOP's way: what arrives waits.
  void Stall(TimePoint until);
  // Its stages compute so many times slower until then.
  void SlowDown(uint32_t times, TimePoint until);
  bool stalled() const { return up_ && world().now() < stalled_until_; }
  uint32_t TimesSlower() const { return world().now() < slow_until_ ? times_slower_ : 1; }
  void BreakControlStream();

  // What its disk has of weights; and what its stages have loaded is not to be deleted there.
  SimCache& cache() { return cache_; }
  SimCache::InUse InUse() const;
  // Blobs that stages of it have fetched since the start; those of layers that are kept are not
  // among them.
  uint64_t blobs_fetched() const { return blobs_fetched_; }

  // Faults of stage and device; false where there is nothing to damage.
  bool FlipBit(uint64_t random);
  bool FailBackend();
  bool PoisonStage(uint64_t random);
  // From now on it fails at kPoisonToken, in this life and all others.
  bool Poison(FaultKind kind);

  // What arrives, each for one incarnation. On the control stream, and its end:
  void OnMessage(uint64_t incarnation, const v1::CoordinatorMessage& message);
  void OnStreamEnded(uint64_t incarnation, const absl::Status& why);
  // Who answers at the coordinator's address. Every process there has a term of its own.
  void OnCoordinatorAnswers(uint64_t incarnation, uint64_t term);
  // The stage before, or the coordinator, wants to open its link; `answer` is told whether it may.
  void Accept(const v1::LinkOpen& open, const std::function<void(const absl::Status&)>& answer);
  void OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer) {
    Accept(open, [answer](const absl::Status& status) { answer(status.ok()); });
  }
  // Whom this worker's link of `open` led to has broken it.
  void OnLinkBroken(const v1::LinkOpen& open, const absl::Status& why);
  void OnFrame(uint64_t incarnation, const std::shared_ptr<const StepMessage>& frame);
  // Another worker asks this life for a blob. There may be no answer.
  void OnBlobAsked(uint64_t incarnation, const std::string& sha256,
                   const std::function<void(bool given, bool damaged)>& answer);
  // Another worker's stage is to take the place of one of this worker's.
  void OnKvAsked(const v1::CarryKvRequest& request, const SimStage::KvAnswerFn& answer);
  // The leader of a stage asks a rank of this worker to join, and has connected all of them.
  using RankAnswerFn =
      std::function<void(const absl::StatusOr<std::shared_ptr<const RankOwner>>& owner)>;
  void OnRankAsked(const RankAsked& asked, const RankAnswerFn& answer);
  void OnRanksConnected(uint64_t incarnation, uint64_t deployment, uint64_t loaded_epoch,
                        const std::shared_ptr<RankChannels>& channels);
  void OnGarbledFrame(uint64_t incarnation, uint64_t deployment, uint64_t epoch);

  // Loads of ranks, from when they come until they are gone.
  std::vector<const v1::Load*> Ranks() const;

  // Sequences and pages that the stage of a deployment holds; of all stages when `deployment` is 0.
  size_t sequences(uint64_t deployment) const;
  uint64_t pages_in_use(uint64_t deployment) const;

 private:
  World& world() const { return *cluster_->world; }
  // Runs `what` in this process: at once, once a stall is over, or never.
  void ReachProcess(uint64_t process, const std::function<void()>& what);
  void After(nanoseconds delay, const std::function<void()>& what);
  // The same, in this life.
  void Reach(uint64_t incarnation, const std::function<void()>& what);
  WorkerLife life() const { return {cluster_, machine_, name_, incarnation_}; }
  // The stage of a deployment, once it is loaded.
  SimStage* Find(uint64_t deployment) const;
  std::vector<SimStage*> Loaded() const;

  // Does what is due.
  void Drive();
  void WakeAt(TimePoint when);
  void Register();
  void TellOfCache();
  void AskWhoAnswers();
  void OnAnswer(uint64_t asked, uint64_t found);
  void EndLife();

  void CheckFence(const v1::Fence& fence);
  // Of the Load of what stands; 0: nothing does.
  uint64_t LoadedEpoch(uint64_t deployment) const;
  void CheckPlace(const v1::Fence& fence, uint64_t loaded_before);

  // NodeHost.
  void Say(v1::WorkerMessage message) override { life().Say(std::move(message)); }
  void Add(StageId stage, const v1::Load& load, StageId before) override;
  void BeginLoad(StageId stage) override;
  void TakeOff(StageId stage) override;
  void Fence(StageId stage, const v1::Fence& fence) override;
  void LoadByCache(StageId stage);
  void EndLoad(StageId stage, const SimLoader::Loaded& loaded);
  void EndStage(StageId stage);
  // The rank that follows, loaded in this epoch; or null.
  SimSeat* SeatOf(uint64_t deployment, uint64_t loaded_epoch) const;
  bool FailRank();

  // A stage, from its Load on.
  struct Placed {
    v1::Load load;
    // One of them, once it is loaded: a stage or its first rank, or a rank that follows.
    std::unique_ptr<SimStage> host;
    std::unique_ptr<SimSeat> seat;

    bool loaded() const { return host != nullptr || seat != nullptr; }
    std::shared_ptr<RankOwner> rank_owner() const {
      return host != nullptr ? host->rank_owner() : seat != nullptr ? seat->owner() : nullptr;
    }
  };

  Cluster* const cluster_;
  const Machine machine_;
  const std::string name_;
  bool up_ = false;
  uint32_t times_slower_ = 1;
  TimePoint slow_until_{0};
  uint64_t incarnation_ = 0;  // The newest.
  TimePoint stalled_until_{0};
  // Of the process that runs; those before it have other numbers.
  uint64_t process_ = 0;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<NodeStages> stages_;
  absl::Status stream_;  // How the control stream of this life ended.
  std::optional<TimePoint> wake_;
  uint64_t asked_ = 0;  // How often who answers.
  std::optional<FaultKind> poison_;
  SimCache cache_;
  std::unique_ptr<SimLoader> loader_;  // Of the process.
  uint64_t blobs_fetched_ = 0;
  // Of ranks that ended with the machine, until it starts again.
  std::vector<std::shared_ptr<RankOwner>> vanished_;
  std::map<StageId, Placed> placed_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_WORKER_H_
