#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"
#include "worker/service/lease_policy.h"

namespace strata::sim {
namespace {

constexpr nanoseconds kRegisterBackoff = milliseconds(100);
constexpr nanoseconds kRegisterTimeout = milliseconds(1000);
// Until a process that poison killed is started again.
constexpr nanoseconds kRestart = milliseconds(30);

}  // namespace

SimWorker::SimWorker(Cluster* cluster, Machine machine)
    : cluster_(cluster), machine_(machine), name_("worker-" + std::to_string(machine)) {}

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

void SimWorker::Say(std::function<void()> arrives) const {
  life().TellCoordinator(std::move(arrives));
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
    Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
      cluster->coordinator->OnStreamEnded(machine, incarnation);
    });
  }
}

void SimWorker::Stall(TimePoint until) { stalled_until_ = std::max(stalled_until_, until); }

void SimWorker::BreakControlStream() {
  if (up_ && registered_) {
    OnStreamEnded(incarnation_);
  }
}

void SimWorker::Register() {
  incarnation_ = ++cluster_->incarnations;
  registered_ = false;
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnRegister(machine, incarnation);
  });
  After(kRegisterTimeout, [this] {
    if (!registered_) {
      EndLife("its registration was not answered");
    }
  });
}

void SimWorker::OnRegistered(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] {
    world().Tell(
        [&] { return name_ + " has joined the coordinator of term " + std::to_string(term); });
    registered_ = true;
    term_ = term;
    answers_since_ = std::nullopt;
    lease_end_ = world().now() + world().scenario.lease;
    Beat();
  });
}

void SimWorker::OnRefused(uint64_t incarnation) {
  Reach(incarnation, [this] { EndLife("its registration was refused"); });
}

void SimWorker::OnLeaseRenewed(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] {
    if (term == term_) {
      lease_end_ = world().now() + world().scenario.lease;
      answers_since_ = std::nullopt;
    }
  });
}

void SimWorker::OnCoordinatorAnswers(uint64_t incarnation, uint64_t term) {
  Reach(incarnation, [this, term] {
    if (!registered_ || !lease_policy::HasLapsed(world().now(), lease_end_)) {
      return;
    }
    answers_since_ = answers_since_.value_or(world().now());
    const auto who =
        term == term_ ? lease_policy::Coordinator::kSame : lease_policy::Coordinator::kAnother;
    if (lease_policy::EndsLife(who, world().now() - *answers_since_, world().scenario.lease)) {
      EndLife("its lease lapsed, and the coordinator of term " + std::to_string(term) + " answers");
    }
  });
}

void SimWorker::OnStreamEnded(uint64_t incarnation) {
  Reach(incarnation, [this] { EndLife("its control stream broke"); });
}

void SimWorker::Beat() {
  if (lease_policy::HasLapsed(world().now(), lease_end_)) {
    world().Count(Rule::kLeaseLapsed);
    AskWhoAnswers();
  }
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_, term = term_] {
    cluster->coordinator->OnHeartbeat(machine, incarnation, term);
  });
  const nanoseconds left = lease_end_ - world().now();
  const nanoseconds period = world().scenario.lease / 5;
  After(left > nanoseconds(0) ? std::min(period, left) : period, [this] { Beat(); });
}

// On a connection of its own, so that who answers is who listens there now.
void SimWorker::AskWhoAnswers() {
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnWhoAnswers(machine, incarnation);
  });
}

// Drops every sequence and stage, and registers anew.
void SimWorker::EndLife(const std::string& why) {
  world().Tell([&] { return name_ + " drops what it holds and registers anew: " + why; });
  Say([cluster = cluster_, machine = machine_, incarnation = incarnation_] {
    cluster->coordinator->OnStreamEnded(machine, incarnation);
  });
  registered_ = false;
  loading_.clear();
  stages_.clear();
  incarnation_ = ++cluster_->incarnations;
  After(kRegisterBackoff, [this] { Register(); });
}

// ---- Stages.

void SimWorker::OnLoad(uint64_t incarnation, const StageLoad& load) {
  Reach(incarnation, [this, load] {
    stages_.erase(load.deployment);
    loading_[load.deployment] = load.epoch;
    const nanoseconds takes = milliseconds(world().random.Between(5, 60));
    After(takes, [this, load] {
      const auto loading = loading_.find(load.deployment);
      if (loading == loading_.end() || loading->second != load.epoch) {
        return;  // Unloaded meanwhile, or told to load anew.
      }
      loading_.erase(loading);
      stages_.try_emplace(
          load.deployment, life(), load,
          [this, incarnation = incarnation_, deployment = load.deployment](const auto& what) {
            Reach(incarnation, [this, deployment, what] {
              if (SimStage* stage = Find(deployment); stage != nullptr) {
                what(stage);
              }
            });
          });
      if (poison_ == FaultKind::kPoisonDevice) {
        stages_.at(load.deployment).FailAtPoison();
      }
      world().Tell([&] {
        return name_ + " has loaded stage " + std::to_string(load.stage) + " of deployment " +
               std::to_string(load.deployment);
      });
      Say([cluster = cluster_, machine = machine_, incarnation = incarnation_,
           deployment = load.deployment, epoch = load.epoch] {
        cluster->coordinator->OnLoaded(machine, incarnation, deployment, epoch);
      });
    });
  });
}

void SimWorker::OnUnload(uint64_t incarnation, uint64_t deployment) {
  Reach(incarnation, [this, deployment] {
    loading_.erase(deployment);
    if (stages_.erase(deployment) > 0) {
      world().Tell([&] { return name_ + " unloads deployment " + std::to_string(deployment); });
    }
  });
}

void SimWorker::OnFence(uint64_t incarnation, uint64_t deployment, uint64_t epoch) {
  Reach(incarnation, [this, deployment, epoch] {
    if (SimStage* stage = Find(deployment); stage != nullptr) {
      stage->Fence(epoch);
    } else {
      life().AcknowledgeFence(
          deployment, epoch,
          Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "not loaded here").Node(name_));
    }
  });
}

void SimWorker::OnLinkOpen(uint64_t incarnation, uint64_t deployment, uint64_t epoch,
                           const std::function<void(bool)>& answer) {
  Reach(incarnation, [this, deployment, epoch, answer] {
    const SimStage* stage = Find(deployment);
    answer(stage != nullptr && stage->epoch() == epoch);
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
