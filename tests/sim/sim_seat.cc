#include "tests/sim/sim_seat.h"

#include <utility>

#include "common/check.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/stage_device.h"

namespace strata::sim {

SimSeat::SimSeat(Cluster* cluster, Machine machine, const v1::Load& load, const StageSpec& spec)
    : cluster_(cluster),
      machine_(machine),
      load_(load),
      spec_(spec),
      shard_(spec, RankPlaceOf(load)),
      epochs_(load.ranks().rank(), static_cast<uint32_t>(load.ranks().of_size())) {}

SimSeat::~SimSeat() { End(absl::CancelledError("the stage is unloaded")); }

void SimSeat::End(const absl::Status& why) {
  if (follows_) {
    follower_->Stop(why);
    if (!cluster_->ranks->RunUntil([this] { return !follows_; })) {
      cluster_->world->Fail(NodeName(machine_) + " follows on though it is told to stop");
    }
  }
  if (owner_ != nullptr) {
    owner_->there = false;  // What waits all the same ends by that.
    STRATA_CHECK(cluster_->ranks->RunUntil([this] { return !follows_; }));
  }
}

absl::StatusOr<std::shared_ptr<const RankOwner>> SimSeat::Join(const RankAsked& asked) {
  if (const absl::Status refused =
          epochs_.Join(asked.epoch, asked.rank, asked.ranks, asked.rank - 1);
      !refused.ok()) {
    return refused;
  }
  End(absl::CancelledError("the ranks are joined anew"));
  owner_ = std::make_shared<RankOwner>(RankOwner{.machine = machine_});
  epoch_ = asked.epoch;
  follower_ = std::make_unique<RankFollower>(
      &shard_, spec_, asked.rank, RankTimesOf(load_, cluster_->ranks->clock(), [this](uint64_t) {
        PauseRank(*cluster_, *owner_);
      }));
  return owner_;
}

void SimSeat::Connected(RankChannels channels) {
  if (channels.epoch != epoch_ || follows_) {
    return;  // Of one that has ended.
  }
  follows_ = true;
  const auto own = std::make_shared<RankChannels>(std::move(channels));
  cluster_->ranks->Start(
      RankFibers::Waits::kIdly,
      [this, own] {
        const absl::Status status = follower_->Follow(std::move(*own));
        cluster_->world->Tell([&] {
          return NodeName(machine_) + " follows no more: " +
                 (status.ok() ? "its leader ended" : std::string(status.message()));
        });
      },
      [this] { follows_ = false; });
  cluster_->ranks->Run();
}

}  // namespace strata::sim
