#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/status.h"
#include "tests/sim/sim_coordinator.h"

namespace strata::sim {
namespace {

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

// ---- Lives and the lease.

void SimWorker::Start() {
  up_ = true;
  ++process_;
  stalled_until_ = TimePoint(0);
  wake_.reset();
  for (const std::shared_ptr<RankOwner>& owner : std::exchange(vanished_, {})) {
    owner->silent = false;
  }
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
  for (const auto& [stage, placed] : placed_) {
    if (const std::shared_ptr<RankOwner> owner = placed.rank_owner(); owner != nullptr) {
      owner->there = false;
      owner->silent = silent;
      vanished_.push_back(owner);
    }
  }
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
  message.mutable_register_()->set_ranks(true);
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

}  // namespace strata::sim
