#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"

namespace strata::sim {
namespace {

// What a stage that is taken off takes at most until it is gone.
constexpr uint64_t kTakeOffMs = 3;
// Until a process that poison killed is started again.
constexpr nanoseconds kRestart = milliseconds(30);

// Shorter than those of a process, as leases are here.
MembershipTimes TimesOf(const Scenario& scenario) {
  return {.register_timeout = milliseconds(1000),
          .look_every = scenario.lease / 10,
          .first_backoff = milliseconds(100),
          .longest_backoff = milliseconds(400),
          .shortest_beat = milliseconds(20)};
}

}  // namespace

SimWorker::SimWorker(Cluster* cluster, Machine machine)
    : cluster_(cluster), machine_(machine), name_(NodeName(machine)), cache_(cluster->world) {}

void SimWorker::ReachProcess(uint64_t process, const std::function<void()>& what) {
  if (!up_ || process != process_) {
    return;
  }
  if (world().now() < stalled_until_) {
    world().events.At(stalled_until_, [this, process, what] { ReachProcess(process, what); });
    return;
  }
  what();
}

void SimWorker::After(nanoseconds delay, const std::function<void()>& what) {
  world().After(delay, [this, process = process_, what] { ReachProcess(process, what); });
}

void SimWorker::Reach(uint64_t incarnation, const std::function<void()>& what) {
  ReachProcess(process_, [this, incarnation, what] {
    if (incarnation == incarnation_) {
      what();
    }
  });
}

SimStage* SimWorker::Find(uint64_t deployment) const {
  const StageId stage = up_ ? stages_->Loaded(deployment) : 0;
  return stage == 0 ? nullptr : placed_.at(stage).host.get();
}

// ---- Lives and the lease.

void SimWorker::Start() {
  up_ = true;
  ++process_;
  stalled_until_ = TimePoint(0);
  wake_.reset();
  membership_ = std::make_unique<Membership>("the coordinator", TimesOf(world().scenario));
  stages_ = std::make_unique<NodeStages>(name_, static_cast<NodeHost*>(this));
  cache_.BeginProcess();
  loader_ = std::make_unique<SimLoader>(
      cluster_, &cache_,
      [this, process = process_](const std::function<void()>& what) {
        ReachProcess(process, what);
      },
      [this] { return InUse(); });
  Drive();
}

void SimWorker::Stop(bool silent) {
  up_ = false;
  placed_.clear();
  if (!silent) {
    life().EndStream();
  }
}

void SimWorker::Stall(TimePoint until) { stalled_until_ = std::max(stalled_until_, until); }

void SimWorker::SlowDown(uint32_t times, TimePoint until) {
  times_slower_ = times;
  slow_until_ = until;
}

void SimWorker::BreakControlStream() {
  if (up_ && membership_->registered()) {
    OnStreamEnded(incarnation_, absl::UnavailableError("its control stream broke"));
  }
}

void SimWorker::Drive() {
  while (true) {
    const MembershipStep step = membership_->Next(world().now());
    switch (step.act) {
      case MembershipAct::kWait:
        WakeAt(step.until);
        return;
      case MembershipAct::kRegister:
        Register();
        break;
      case MembershipAct::kSendHeartbeat: {
        v1::WorkerMessage message;
        *message.mutable_heartbeat() = stages_->Heartbeat(step.term);
        Say(std::move(message));
        TellOfCache();
        break;
      }
      case MembershipAct::kAskWhoAnswers:
        AskWhoAnswers();
        break;
      case MembershipAct::kEndLife:
        EndLife();
        break;
      case MembershipAct::kTellLapsed:
        world().Count(Rule::kLeaseLapsed);
        break;
      case MembershipAct::kTellRenewed:
        break;
    }
  }
}

void SimWorker::TellOfCache() {
  if (!world().scenario.caches) {
    return;
  }
  for (v1::WorkerMessage& message : cache_.Changes(incarnation_)) {
    Say(std::move(message));
  }
}

void SimWorker::WakeAt(TimePoint when) {
  if (when == TimePoint::max() || (wake_.has_value() && *wake_ <= when)) {
    return;
  }
  wake_ = when;
  After(when - world().now(), [this, when] {
    if (wake_ == when) {
      wake_.reset();
      Drive();
    }
  });
}

void SimWorker::Register() {
  incarnation_ = ++cluster_->incarnations;
  stream_ = absl::OkStatus();
  membership_->BeginLife(world().now());
  stages_->BeginLife(incarnation_);
  v1::WorkerMessage message;
  message.mutable_register_()->set_name(name_);
  message.mutable_register_()->set_incarnation(incarnation_);
  message.mutable_register_()->set_address(name_);
  message.mutable_register_()->set_numerics(kNumericsClass);
  message.mutable_register_()->set_loads_beside(true);
  message.mutable_register_()->set_links_ahead(true);
  message.mutable_register_()->set_memory_bytes(1 << 20);  // More than any stage weighs.
  Say(std::move(message));
}

// Drops every sequence and stage.
void SimWorker::EndLife() {
  loader_->EndLife();
  stages_->EndLife();
  life().EndStream();
  const absl::Status why = membership_->EndLife(stream_, world().now());
  world().Tell([&] {
    return name_ + " drops what it holds and registers anew: " + std::string(why.message());
  });
}

void SimWorker::OnMessage(uint64_t incarnation, const v1::CoordinatorMessage& message) {
  Reach(incarnation, [this, message] {
    if (message.has_registered()) {
      world().Tell([&] {
        return name_ + " has joined the coordinator of term " +
               std::to_string(message.registered().term());
      });
    }
    membership_->OnMessage(message, world().now());
    CheckFence(message.fence());
    if (message.has_keep_layer()) {
      loader_->OnKeep(life(), message.keep_layer());
    } else if (message.has_drop_layers()) {
      loader_->OnDrop(message.drop_layers());
    } else {
      const uint64_t loaded = LoadedEpoch(message.fence().deployment());
      stages_->OnMessage(message);
      if (message.has_fence()) CheckPlace(message.fence(), loaded);
    }
    Drive();
  });
}

// Nobody is to serve before it has loaded.
void SimWorker::CheckFence(const v1::Fence& fence) {
  for (const auto& [stage, placed] : placed_) {
    if (fence.loaded_epoch() != 0 && placed.load.deployment() == fence.deployment() &&
        placed.load.epoch() == fence.loaded_epoch() && placed.host == nullptr &&
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
  placed.host->Fence(fence);
}

void SimWorker::OnStreamEnded(uint64_t incarnation, const absl::Status& why) {
  Reach(incarnation, [this, why] {
    stream_ = why;
    membership_->OnStreamEnded();
    Drive();
  });
}

// On a connection of its own, so that who answers is who listens there now.
void SimWorker::AskWhoAnswers() {
  life().TellCoordinator([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnWhoAnswers(machine, incarnation);
  });
  After(world().scenario.lease / 10, [this, asked = ++asked_] { OnAnswer(asked, 0); });
}

void SimWorker::OnCoordinatorAnswers(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] { OnAnswer(asked_, term); });
}

void SimWorker::OnAnswer(uint64_t asked, uint64_t found) {
  if (asked == asked_) {
    ++asked_;  // What comes later answers nothing.
    membership_->OnAnswer(found, world().now());
    Drive();
  }
}

// ---- Stages.

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
    uint64_t discarded = 0;
    if (placed.host != nullptr) {
      world().Tell([&] {
        return name_ + " unloads deployment " + std::to_string(placed.load.deployment());
      });
      placed.host->Stop();
      discarded = placed.host->frames_discarded();
    }
    placed_.erase(stage);
    stages_->OnGone(stage, discarded);
  });
}

void SimWorker::Accept(const v1::LinkOpen& open,
                       const std::function<void(const absl::Status&)>& answer) {
  Reach(open.to_incarnation(), [this, open, answer] {
    const absl::StatusOr<StageId> stage = stages_->Reaches(open);
    if (stage.ok()) {
      placed_.at(*stage).host->Accept(open, answer);
    } else {
      answer(stage.status());
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
    return false;
  }
  loaded.front()->FailBackend();
  return true;
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
