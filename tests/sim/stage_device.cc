#include "tests/sim/stage_device.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

// Shorter than a worker's, as step timeouts are here.
constexpr nanoseconds kAskTimeout = milliseconds(200);
constexpr nanoseconds kMostOfARank = milliseconds(10'000);

}  // namespace

RankPlace RankPlaceOf(const v1::Load& load) {
  RankPlace place;
  for (const v1::RankOfLoad& rank : load.ranks().of()) {
    place.shares.push_back({rank.share_begin(), rank.share_end()});
  }
  place.rank = load.ranks().rank();
  return place;
}

RankTimes RankTimesOf(const v1::Load& load, const Clock* clock,
                      std::function<void(uint64_t)> pause) {
  RankTimes times = {
      .clock = clock,
      .timeout = std::min<nanoseconds>(kMostOfARank, milliseconds(load.step_timeout_ms()) / 2),
      .silence = kRankSilence,
      .pause = std::move(pause)};
  for (const v1::RankOfLoad& rank : load.ranks().of()) {
    times.names.push_back(rank.worker().node());
  }
  return times;
}

void PauseRank(const Cluster& cluster, const RankOwner& owner) {
  do {
    cluster.ranks->Pause();
  } while (owner.there && cluster.worker(owner.machine)->stalled());
}

StageDevice::StageDevice(Cluster* cluster, Machine machine, const v1::Load& load,
                         const StageSpec& spec)
    : cluster_(cluster), machine_(machine), load_(load) {
  if (!load.has_ranks()) {
    alone_ = std::make_unique<strata::testing::HashShard>(spec);
    return;
  }
  owner_ = std::make_shared<RankOwner>(RankOwner{.machine = machine});
  auto rank = std::make_unique<HashRank>(spec, RankPlaceOf(load));
  rank_ = rank.get();
  leader_ = std::make_unique<LeaderShard>(
      std::move(rank), RankTimesOf(load, cluster->ranks->clock(), [this](uint64_t) { Pause(); }),
      [this](uint64_t epoch) { return Join(epoch); });
}

StageDevice::~StageDevice() { End(); }

Shard* StageDevice::shard() {
  return leader_ != nullptr ? static_cast<Shard*>(leader_.get()) : alone_.get();
}

void StageDevice::Do(const std::function<void()>& work, const std::function<void()>& done) {
  if (!has_ranks()) {
    work();
    done();
    return;
  }
  busy_ = true;
  cluster_->ranks->Start(RankFibers::Waits::kBriefly, work, [this, done] {
    busy_ = false;
    if (owner_->there) {
      done();
    }
  });
  cluster_->ranks->Run();
}

void StageDevice::End() {
  if (busy_) {
    owner_->there = false;  // What it waits for ends.
    if (!cluster_->ranks->RunUntil([this] { return !busy_; })) {
      cluster_->world->Fail(NodeName(machine_) + " waits for ranks that it has no connection to");
    }
  }
}

void StageDevice::Beat() {
  leader_->Beat();
  cluster_->ranks->Run();
}

// ---- Joining.

absl::StatusOr<std::shared_ptr<const RankOwner>> StageDevice::Ask(uint64_t epoch, uint32_t rank) {
  using Answer = absl::StatusOr<std::shared_ptr<const RankOwner>>;
  const auto came = std::make_shared<std::optional<Answer>>();
  const v1::NextHop& peer = load_.ranks().of(static_cast<int>(rank)).worker();
  const Machine there = MachineOf(peer.node());
  const RankAsked asked = {.incarnation = peer.incarnation(),
                           .deployment = load_.deployment(),
                           .loaded_epoch = load_.epoch(),
                           .epoch = epoch,
                           .rank = rank,
                           .ranks = static_cast<uint32_t>(load_.ranks().of_size())};
  const auto answer = [came, there, here = machine_, cluster = cluster_](const Answer& said) {
    cluster->network->SendControl(there, here, [came, said, cluster] {
      *came = said;
      cluster->ranks->Run();
    });
  };
  cluster_->network->SendControl(machine_, there, [cluster = cluster_, there, asked, answer] {
    cluster->worker(there)->OnRankAsked(asked, answer);
  });
  const TimePoint deadline = cluster_->world->now() + kAskTimeout;
  while (!came->has_value()) {
    if (!owner_->there || cluster_->world->now() >= deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, "RANK_JOIN",
                   "node '" + peer.node() + "' does not answer");
    }
    Pause();
  }
  return **came;
}

absl::StatusOr<RankChannels> StageDevice::Join(uint64_t epoch) {
  const auto ranks = static_cast<uint32_t>(load_.ranks().of_size());
  std::vector<std::shared_ptr<const RankOwner>> owners = {owner_};
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    absl::StatusOr<std::shared_ptr<const RankOwner>> owner = Ask(epoch, rank);
    if (!owner.ok()) {
      cluster_->world->Count(Rule::kRankNotJoined);
      return owner.status();
    }
    owners.push_back(*std::move(owner));
  }
  std::vector<RankChannels> channels(ranks);
  for (RankChannels& one : channels) {
    one.epoch = epoch;
    one.gathers.resize(ranks);
  }
  const auto connect = [&](uint32_t one, uint32_t other) {
    return ConnectRanks(owners[one], owners[other], cluster_->network, cluster_->ranks.get());
  };
  channels[0].calls.resize(ranks);
  for (uint32_t one = 0; one < ranks; ++one) {
    for (uint32_t other = one + 1; other < ranks; ++other) {
      RankWireEnds ends = connect(one, other);
      channels[one].gathers[other] = std::move(ends.one);
      channels[other].gathers[one] = std::move(ends.other);
    }
  }
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    RankWireEnds ends = connect(0, rank);
    channels[0].calls[rank] = std::move(ends.one);
    channels[rank].calls.push_back(std::move(ends.other));
    const v1::NextHop& peer = load_.ranks().of(static_cast<int>(rank)).worker();
    const auto own = std::make_shared<RankChannels>(std::move(channels[rank]));
    cluster_->network->SendControl(
        machine_, MachineOf(peer.node()),
        [cluster = cluster_, there = MachineOf(peer.node()), incarnation = peer.incarnation(),
         deployment = load_.deployment(), loaded_epoch = load_.epoch(), own] {
          cluster->worker(there)->OnRanksConnected(incarnation, deployment, loaded_epoch, own);
        });
  }
  cluster_->world->Count(std::exchange(joined_before_, true) ? Rule::kRanksAnew
                                                             : Rule::kRanksJoined);
  return std::move(channels[0]);
}

// ---- Faults.

void StageDevice::FailAtPoison() {
  has_ranks() ? rank_->FailAtToken(kPoisonToken) : alone_->FailAtToken(kPoisonToken);
}

void StageDevice::FailNextRead() { has_ranks() ? rank_->FailNext() : alone_->FailNextRead(); }

void StageDevice::PoisonToken(uint32_t token_id, uint32_t layer) {
  has_ranks() ? rank_->PoisonToken(token_id, layer) : alone_->PoisonToken(token_id, layer);
}

}  // namespace strata::sim
