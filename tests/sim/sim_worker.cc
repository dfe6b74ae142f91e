#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"
#include "worker/node/lease_policy.h"

namespace strata::sim {
namespace {

constexpr nanoseconds kRegisterBackoff = milliseconds(100);
constexpr nanoseconds kRegisterTimeout = milliseconds(1000);
// Until a process that poison killed is started again.
constexpr nanoseconds kRestart = milliseconds(30);

}  // namespace

SimWorker::SimWorker(Cluster* cluster, Machine machine)
    : cluster_(cluster), machine_(machine), name_(NodeName(machine)) {}

void SimWorker::Reach(uint64_t incarnation, const std::function<void()>& what) {
  if (!up_ || incarnation != incarnation_) {
    return;
  }
  if (world().now() < stalled_until_) {
    world().events.At(stalled_until_, [this, incarnation, what] { Reach(incarnation, what); });
    return;
  }
  what();
}

void SimWorker::After(nanoseconds delay, const std::function<void()>& what) {
  world().After(delay, [this, incarnation = incarnation_, what] { Reach(incarnation, what); });
}

SimStage* SimWorker::Find(uint64_t deployment) {
  const auto it = stages_.find(deployment);
  return it == stages_.end() ? nullptr : &it->second;
}

// ---- Lives and the lease.

void SimWorker::Start() {
  up_ = true;
  stalled_until_ = TimePoint(0);
  Register();
}

void SimWorker::Stop(bool silent) {
  up_ = false;
  registered_ = false;
  loading_.clear();
  stages_.clear();
  if (!silent) {
    life().EndStream();
  }
}

void SimWorker::Stall(TimePoint until) { stalled_until_ = std::max(stalled_until_, until); }

void SimWorker::BreakControlStream() {
  if (up_ && registered_) {
    OnStreamEnded(incarnation_, absl::UnavailableError("its control stream broke"));
  }
}

void SimWorker::Register() {
  incarnation_ = ++cluster_->incarnations;
  registered_ = false;
  v1::WorkerMessage message;
  message.mutable_register_()->set_name(name_);
  message.mutable_register_()->set_incarnation(incarnation_);
  message.mutable_register_()->set_address(name_);
  message.mutable_register_()->set_numerics(kNumericsClass);
  Say(std::move(message));
  After(kRegisterTimeout, [this] {
    if (!registered_) {
      EndLife("its registration was not answered");
    }
  });
}

void SimWorker::OnMessage(uint64_t incarnation, const v1::CoordinatorMessage& message) {
  Reach(incarnation, [this, message] {
    switch (message.kind_case()) {
      case v1::CoordinatorMessage::kRegistered:
        OnRegistered(message.registered());
        break;
      case v1::CoordinatorMessage::kLeaseRenewed:
        OnLeaseRenewed(message.lease_renewed().term());
        break;
      case v1::CoordinatorMessage::kLoad:
        OnLoad(message.load());
        break;
      case v1::CoordinatorMessage::kUnload:
        OnUnload(message.unload().deployment());
        break;
      case v1::CoordinatorMessage::kFence:
        OnFence(message.fence());
        break;
      default:
        break;
    }
  });
}

void SimWorker::OnRegistered(const v1::Registered& registered) {
  term_ = registered.term();
  world().Tell(
      [&] { return name_ + " has joined the coordinator of term " + std::to_string(term_); });
  registered_ = true;
  answers_since_ = std::nullopt;
  lease_ = milliseconds(registered.lease_ms());
  heartbeat_ = milliseconds(registered.heartbeat_ms());
  lease_end_ = world().now() + lease_;
  Beat();
}

void SimWorker::OnLeaseRenewed(uint64_t term) {
  if (term == term_) {
    lease_end_ = world().now() + lease_;
    answers_since_ = std::nullopt;
  }
}

void SimWorker::OnCoordinatorAnswers(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] {
    if (!registered_ || !lease_policy::HasLapsed(world().now(), lease_end_)) {
      return;
    }
    answers_since_ = answers_since_.value_or(world().now());
    const auto who =
        term == term_ ? lease_policy::Coordinator::kSame : lease_policy::Coordinator::kAnother;
    if (lease_policy::EndsLife(who, world().now() - *answers_since_, lease_)) {
      EndLife("its lease lapsed, and the coordinator of term " + std::to_string(term) + " answers");
    }
  });
}

void SimWorker::OnStreamEnded(uint64_t incarnation, const absl::Status& why) {
  Reach(incarnation, [this, why] { EndLife(std::string(why.message())); });
}

void SimWorker::Beat() {
  if (lease_policy::HasLapsed(world().now(), lease_end_)) {
    world().Count(Rule::kLeaseLapsed);
    AskWhoAnswers();
  }
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_term(term_);
  Say(std::move(message));
  const nanoseconds left = lease_end_ - world().now();
  After(left > nanoseconds(0) ? std::min(heartbeat_, left) : heartbeat_, [this] { Beat(); });
}

// On a connection of its own, so that who answers is who listens there now.
void SimWorker::AskWhoAnswers() {
  life().TellCoordinator([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnWhoAnswers(machine, incarnation);
  });
}

// Drops every sequence and stage, and registers anew.
void SimWorker::EndLife(const std::string& why) {
  world().Tell([&] { return name_ + " drops what it holds and registers anew: " + why; });
  life().EndStream();
  registered_ = false;
  loading_.clear();
  stages_.clear();
  incarnation_ = ++cluster_->incarnations;
  After(kRegisterBackoff, [this] { Register(); });
}

// ---- Stages.

void SimWorker::OnLoad(const v1::Load& load) {
  stages_.erase(load.deployment());
  loading_[load.deployment()] = load.epoch();
  const nanoseconds takes = milliseconds(world().random.Between(5, 60));
  After(takes, [this, load] {
    const auto loading = loading_.find(load.deployment());
    if (loading != loading_.end() && loading->second == load.epoch()) {
      loading_.erase(loading);
      OnLoaded(load);
    }  // Else it was unloaded meanwhile, or told to load anew.
  });
}

void SimWorker::OnLoaded(const v1::Load& load) {
  const auto reach = [this, incarnation = incarnation_,
                      deployment = load.deployment()](const auto& what) {
    Reach(incarnation, [this, deployment, what] {
      if (SimStage* stage = Find(deployment); stage != nullptr) {
        what(stage);
      }
    });
  };
  stages_.try_emplace(load.deployment(), life(), load, reach);
  if (poison_ == FaultKind::kPoisonDevice) {
    stages_.at(load.deployment()).FailAtPoison();
  }
  world().Tell([&] {
    return name_ + " has loaded stage " + std::to_string(load.stage()) + " of deployment " +
           std::to_string(load.deployment());
  });
  v1::WorkerMessage message;
  message.mutable_load_progress()->set_deployment(load.deployment());
  message.mutable_load_progress()->set_epoch(load.epoch());
  message.mutable_load_progress()->set_phase(v1::LoadProgress::PHASE_READY);
  Say(std::move(message));
}

void SimWorker::OnUnload(uint64_t deployment) {
  loading_.erase(deployment);
  if (stages_.erase(deployment) > 0) {
    world().Tell([&] { return name_ + " unloads deployment " + std::to_string(deployment); });
  }
}

void SimWorker::OnFence(const v1::Fence& fence) {
  if (SimStage* stage = Find(fence.deployment()); stage != nullptr) {
    stage->Fence(fence.epoch());
  } else {
    life().AcknowledgeFence(
        fence.deployment(), fence.epoch(),
        Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "not loaded here").Node(name_));
  }
}

void SimWorker::OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer) {
  Reach(open.to_incarnation(), [this, open, answer] {
    const SimStage* stage = Find(open.deployment());
    answer(stage != nullptr && stage->epoch() == open.epoch());
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

void SimWorker::OnGarbledFrame(uint64_t incarnation, uint64_t deployment, uint64_t epoch) {
  Reach(incarnation, [this, deployment, epoch] {
    world().Count(Rule::kBadChecksum);
    if (SimStage* stage = Find(deployment); stage != nullptr) {
      stage->Report(epoch, Error(absl::StatusCode::kDataLoss, "FRAME_CRC",
                                 "a frame's checksum does not match")
                               .Node(name_));
    }
  });
}

// ---- Faults, and what is held.

bool SimWorker::FlipBit(uint64_t random) {
  return std::any_of(stages_.begin(), stages_.end(),
                     [random](auto& entry) { return entry.second.FlipBit(random); });
}

bool SimWorker::FailBackend() {
  if (stages_.empty()) {
    return false;
  }
  stages_.begin()->second.FailBackend();
  return true;
}

bool SimWorker::PoisonStage(uint64_t random) {
  if (stages_.empty()) {
    return false;
  }
  stages_.begin()->second.Poison(random);
  return true;
}

bool SimWorker::Poison(FaultKind kind) {
  poison_ = kind;
  world().Tell([&] {
    return "FAULT: " + name_ + ": " + std::string(NameOf(kind)) + " is token " +
           std::to_string(kPoisonToken);
  });
  if (kind == FaultKind::kPoisonDevice) {
    for (auto& [deployment, stage] : stages_) {
      stage.FailAtPoison();
    }
  }
  return !stages_.empty();
}

bool SimWorker::MeetsPoison(SimStage* stage) {
  if (poison_ == FaultKind::kPoisonLinks) {
    stage->Report(stage->epoch(),
                  Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "the link broke at a frame")
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
  for (const auto& [id, stage] : stages_) {
    if (deployment == 0 || id == deployment) {
      sequences += stage.sequences();
    }
  }
  return sequences;
}

uint64_t SimWorker::pages_in_use(uint64_t deployment) const {
  uint64_t pages = 0;
  for (const auto& [id, stage] : stages_) {
    if (deployment == 0 || id == deployment) {
      pages += stage.pages_in_use();
    }
  }
  return pages;
}

}  // namespace strata::sim
