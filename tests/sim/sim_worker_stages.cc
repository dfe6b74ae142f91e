// The stages of a simulated worker: loaded, computing, following, and taken off.
#include <algorithm>
#include <memory>
#include <utility>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

// What a stage that is taken off takes at most until it is gone.
constexpr uint64_t kTakeOffMs = 3;
// How often it is looked whether a step that ranks compute has ended.
constexpr nanoseconds kLookAtStep = milliseconds(5);
// Until a process that poison killed is started again.
constexpr nanoseconds kRestart = milliseconds(30);

}  // namespace

SimStage* SimWorker::Find(uint64_t deployment) const {
  const StageId stage = up_ ? stages_->Loaded(deployment) : 0;
  return stage == 0 ? nullptr : placed_.at(stage).host.get();
}

// ---- Loading and taking off.

void SimWorker::Add(StageId stage, const v1::Load& load, StageId /*before*/) {
  placed_[stage].load = load;
}

void SimWorker::BeginLoad(StageId stage) {
  if (world().scenario.caches) {
    LoadByCache(stage);
    return;
  }
  After(milliseconds(world().random.Between(5, 60)), [this, stage] {
    if (!stages_->Retired(stage)) {
      EndLoad(stage, {});
    }
  });
}

// Not from inside the decision to load.
void SimWorker::LoadByCache(StageId stage) {
  After(milliseconds(1), [this, stage] {
    if (stages_->Retired(stage)) {
      return;
    }
    loader_->Load(
        life(), placed_.at(stage).load, [this, stage] { return !stages_->Retired(stage); },
        [this, stage](const SimLoader::Loaded& loaded) {
          blobs_fetched_ += loaded.fetched;
          EndLoad(stage, loaded);
        });
  });
}

SimCache::InUse SimWorker::InUse() const {
  SimCache::InUse in_use;
  for (const auto& [stage, placed] : placed_) {
    for (LayerNeeds& needs : NeedsOf(placed.load)) {
      in_use.insert(std::move(needs.key));
      in_use.insert(needs.blobs.begin(), needs.blobs.end());
    }
  }
  return in_use;
}

void SimWorker::OnBlobAsked(uint64_t incarnation, const std::string& sha256,
                            const std::function<void(bool given, bool damaged)>& answer) {
  Reach(incarnation, [this, sha256, answer] { loader_->Give(sha256, answer); });
}

void SimWorker::EndLoad(StageId stage, const SimLoader::Loaded& loaded) {
  Placed& placed = placed_.at(stage);
  v1::LoadProgress progress;
  progress.set_deployment(placed.load.deployment());
  progress.set_epoch(placed.load.epoch());
  if (!loaded.status.ok()) {
    world().Tell(
        [&] { return name_ + " cannot load its stage: " + std::string(loaded.status.message()); });
    stages_->OnLoaded(stage, std::move(progress), loaded.status, 0);
    return;
  }
  const auto reach = [this, process = process_, stage](const auto& what) {
    ReachProcess(process, [this, stage, what] {
      if (const auto it = placed_.find(stage); it != placed_.end()) {
        what(it->second.host.get());
      }
    });
  };
  if (placed.load.has_ranks() && placed.load.ranks().rank() > 0) {
    placed.seat = std::make_unique<SimSeat>(cluster_, machine_, placed.load,
                                            StageSpecOf(world().scenario, placed.load));
    world().Tell([&] {
      return name_ + " has loaded rank " + std::to_string(placed.load.ranks().rank()) +
             " of stage " + std::to_string(placed.load.stage()) + " of deployment " +
             std::to_string(placed.load.deployment());
    });
    stages_->OnLoaded(stage, std::move(progress), absl::OkStatus(), 0);
    return;
  }
  placed.host = std::make_unique<SimStage>(life(), placed.load, reach);
  if (poison_ == FaultKind::kPoisonDevice) {
    placed.host->FailAtPoison();
  }
  for (const uint32_t layer : loaded.damaged) {
    placed.host->SpoilLayer(layer);
  }
  world().Tell([&] {
    return name_ + " has loaded stage " + std::to_string(placed.load.stage()) + " of deployment " +
           std::to_string(placed.load.deployment());
  });
  stages_->OnLoaded(stage, std::move(progress), absl::OkStatus(), 0);
}

void SimWorker::TakeOff(StageId stage) {
  After(milliseconds(world().random.Between(0, kTakeOffMs)), [this, stage] {
    const Placed& placed = placed_.at(stage);
    if (placed.loaded()) {
      world().Tell([&] {
        return name_ + " unloads deployment " + std::to_string(placed.load.deployment());
      });
    }
    if (placed.host != nullptr) {
      placed.host->Stop();
    }
    EndStage(stage);
  });
}

// What is at hand ends first.
void SimWorker::EndStage(StageId stage) {
  const Placed& placed = placed_.at(stage);
  if (placed.host != nullptr && placed.host->busy()) {
    After(kLookAtStep, [this, stage] { EndStage(stage); });
    return;
  }
  const uint64_t discarded = placed.host != nullptr ? placed.host->frames_discarded() : 0;
  placed_.erase(stage);
  stages_->OnGone(stage, discarded);
}

// ---- What reaches stages.

// Nobody is to serve before it has loaded.
void SimWorker::CheckFence(const v1::Fence& fence) {
  for (const auto& [stage, placed] : placed_) {
    if (fence.loaded_epoch() != 0 && placed.load.deployment() == fence.deployment() &&
        placed.load.epoch() == fence.loaded_epoch() && !placed.loaded() &&
        !stages_->Retired(stage)) {
      world().Fail(name_ + " is fenced for a stage that it is still loading");
    }
  }
}

uint64_t SimWorker::LoadedEpoch(uint64_t deployment) const {
  const StageId stage = stages_->Loaded(deployment);
  return stage == 0 ? 0 : placed_.at(stage).load.epoch();
}

// A stage takes another's place when it is named, and then alone.
void SimWorker::CheckPlace(const v1::Fence& fence, uint64_t loaded_before) {
  const uint64_t loaded = LoadedEpoch(fence.deployment());
  if (loaded != loaded_before && loaded != fence.loaded_epoch()) {
    world().Fail(name_ + " has put another stage into a place at a fence that does not name it");
  }
}

void SimWorker::Fence(StageId stage, const v1::Fence& fence) {
  const Placed& placed = placed_.at(stage);
  if (fence.loaded_epoch() != 0 && fence.loaded_epoch() != placed.load.epoch()) {
    world().Fail(name_ + " has a stage heed a fence that is for another one");
  }
  if (placed.host == nullptr) {
    world().Fail(name_ + " is fenced for a rank that follows another worker");
    return;
  }
  placed.host->Fence(fence);
}

void SimWorker::Accept(const v1::LinkOpen& open,
                       const std::function<void(const absl::Status&)>& answer) {
  Reach(open.to_incarnation(), [this, open, answer] {
    const absl::StatusOr<StageId> stage = stages_->Reaches(open);
    if (!stage.ok()) {
      answer(stage.status());
    } else if (SimStage* host = placed_.at(*stage).host.get(); host != nullptr) {
      host->Accept(open, answer);
    } else {
      answer(Error(absl::StatusCode::kFailedPrecondition, "RANK_FOLLOWS",
                   "the stage's first rank is on another worker")
                 .Node(name_));
    }
  });
}

void SimWorker::OnLinkBroken(const v1::LinkOpen& open, const absl::Status& why) {
  Reach(open.from_incarnation(), [this, open, why] {
    for (SimStage* stage : Loaded()) {
      if (stage->deployment() == open.deployment()) {
        stage->OnOnwardBroken(open.epoch(), why);
      }
    }
  });
}

void SimWorker::OnFrame(uint64_t incarnation, const std::shared_ptr<const StepMessage>& frame) {
  if (!up_ || incarnation != incarnation_) {
    world().Count(Rule::kOtherIncarnation);
    return;
  }
  Reach(incarnation, [this, frame] {
    if (SimStage* stage = Find(frame->header.deployment()); stage != nullptr) {
      stage->Take(frame);
    } else {
      world().Count(Rule::kNoDeployment);
    }
  });
}

void SimWorker::OnKvAsked(const v1::CarryKvRequest& request, const SimStage::KvAnswerFn& answer) {
  Reach(request.expected_incarnation(), [this, request, answer] {
    const StageId stage = stages_->GivesKv(request.deployment(), request.loaded_epoch());
    if (stage != 0) {
      placed_.at(stage).host->GiveKv(request, /*begins=*/true, answer);
    } else {
      answer(absl::NotFoundError("no such stage"));
    }
  });
}

SimSeat* SimWorker::SeatOf(uint64_t deployment, uint64_t loaded_epoch) const {
  const StageId stage = stages_->LoadedBy(deployment, loaded_epoch);
  return stage == 0 ? nullptr : placed_.at(stage).seat.get();
}

void SimWorker::OnRankAsked(const RankAsked& asked, const RankAnswerFn& answer) {
  ReachProcess(process_, [this, asked, answer] {
    SimSeat* const seat =
        asked.incarnation == incarnation_ ? SeatOf(asked.deployment, asked.loaded_epoch) : nullptr;
    if (seat != nullptr) {
      answer(seat->Join(asked));
    } else {
      answer(Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "no such rank is loaded here")
                 .Node(name_));
    }
  });
}

void SimWorker::OnRanksConnected(uint64_t incarnation, uint64_t deployment, uint64_t loaded_epoch,
                                 const std::shared_ptr<RankChannels>& channels) {
  Reach(incarnation, [this, deployment, loaded_epoch, channels] {
    if (SimSeat* const seat = SeatOf(deployment, loaded_epoch); seat != nullptr) {
      seat->Connected(std::move(*channels));
    }
  });
}

void SimWorker::OnGarbledFrame(uint64_t incarnation, uint64_t deployment, uint64_t epoch) {
  Reach(incarnation, [this, deployment, epoch] {
    world().Count(Rule::kBadChecksum);
    if (SimStage* stage = Find(deployment); stage != nullptr) {
      stage->BreakInbound(epoch, Error(absl::StatusCode::kDataLoss, "FRAME_CRC",
                                       "a frame's checksum does not match")
                                     .Node(name_));
    }
  });
}

// ---- Faults, and what is held.

std::vector<SimStage*> SimWorker::Loaded() const {
  std::vector<SimStage*> loaded;
  for (const StageId stage : up_ ? stages_->Placed() : std::vector<StageId>()) {
    if (SimStage* host = placed_.at(stage).host.get(); host != nullptr) {
      loaded.push_back(host);
    }
  }
  return loaded;
}

bool SimWorker::FlipBit(uint64_t random) {
  const std::vector<SimStage*> loaded = Loaded();
  return std::any_of(loaded.begin(), loaded.end(),
                     [random](SimStage* stage) { return stage->FlipBit(random); });
}

bool SimWorker::FailBackend() {
  const std::vector<SimStage*> loaded = Loaded();
  if (loaded.empty()) {
    return FailRank();
  }
  loaded.front()->FailBackend();
  return true;
}

bool SimWorker::FailRank() {
  for (const StageId stage : up_ ? stages_->Placed() : std::vector<StageId>()) {
    if (SimSeat* seat = placed_.at(stage).seat.get(); seat != nullptr) {
      world().Tell([&] { return "FAULT: the next step of " + name_ + "'s rank fails"; });
      seat->FailNext();
      return true;
    }
  }
  return false;
}

bool SimWorker::PoisonStage(uint64_t random) {
  const std::vector<SimStage*> loaded = Loaded();
  if (loaded.empty()) {
    return false;
  }
  loaded.front()->Poison(random);
  return true;
}

bool SimWorker::Poison(FaultKind kind) {
  poison_ = kind;
  world().Tell([&] {
    return "FAULT: " + name_ + ": " + std::string(NameOf(kind)) + " is token " +
           std::to_string(kPoisonToken);
  });
  const std::vector<SimStage*> loaded = Loaded();
  if (kind == FaultKind::kPoisonDevice) {
    for (SimStage* stage : loaded) {
      stage->FailAtPoison();
    }
  }
  return !loaded.empty();
}

bool SimWorker::MeetsPoison(SimStage* stage) {
  if (poison_ == FaultKind::kPoisonLinks) {
    stage->BreakInbound(stage->epoch(), Error(absl::StatusCode::kUnavailable, "LINK_BROKEN",
                                              "the link broke at a frame")
                                            .Node(name_));
    return true;
  }
  if (poison_ == FaultKind::kPoisonProcess) {
    // Not from inside its stage.
    After(nanoseconds(0), [this] {
      world().Tell([&] { return name_ + " dies of what it computes"; });
      Stop(/*silent=*/false);
      world().After(kRestart, [this] {
        if (!up_) {
          Start();
        }
      });
    });
    return true;
  }
  return false;
}

std::vector<const v1::Load*> SimWorker::Ranks() const {
  std::vector<const v1::Load*> loads;
  for (const auto& [stage, placed] : placed_) {
    if (placed.load.has_ranks()) {
      loads.push_back(&placed.load);
    }
  }
  return loads;
}

size_t SimWorker::sequences(uint64_t deployment) const {
  size_t sequences = 0;
  for (const auto& [id, placed] : placed_) {
    if (placed.host != nullptr && (deployment == 0 || placed.host.get() == Find(deployment))) {
      sequences += placed.host->sequences();
    }
  }
  return sequences;
}

uint64_t SimWorker::pages_in_use(uint64_t deployment) const {
  uint64_t pages = 0;
  for (const auto& [id, placed] : placed_) {
    if (placed.host != nullptr && (deployment == 0 || placed.host.get() == Find(deployment))) {
      pages += placed.host->pages_in_use();
    }
  }
  return pages;
}

}  // namespace strata::sim
