#include "tests/sim/sim_coordinator.h"

#include <utility>

#include "common/status.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

absl::Status NotServing(std::string_view reason, std::string_view message) {
  return Error(absl::StatusCode::kUnavailable, reason, message).Hint("send it again in a moment");
}

}  // namespace

bool SimCoordinator::Knows(Machine machine, uint64_t incarnation) const {
  const auto stream = streams_.find(machine);
  return up_ && stream != streams_.end() && stream->second == incarnation;
}

bool SimCoordinator::Serves(uint64_t deployment) const {
  return up_ && deployment_ != nullptr && store_.deployment == deployment;
}

void SimCoordinator::Send(Machine machine, const std::function<void()>& arrives) {
  cluster_->network->SendControl(kCoordinatorMachine, machine, arrives);
}

// ---- Lives.

void SimCoordinator::Start() {
  up_ = true;
  life_ = ++cluster_->incarnations;
  ++store_.term;
  world().Tell([&] { return "the coordinator starts, term " + std::to_string(store_.term); });
  sequence_numbers_ = std::make_unique<SequenceNumbers>(store_.term);
  const nanoseconds lease = world().scenario.lease;
  state_ = std::make_unique<ClusterState>(ClusterOptions{lease, lease / 5});
  if (store_.wanted) {
    deployment_ =
        std::make_unique<SimDeployment>(cluster_, &store_, sequence_numbers_.get(), life_);
  }
  ExpireLeases();
}

void SimCoordinator::Stop(bool silent) {
  up_ = false;
  deployment_ = nullptr;
  if (!silent) {
    for (const auto& [machine, incarnation] : streams_) {
      SimWorker* worker = cluster_->worker(machine);
      Send(machine, [worker, to = incarnation] { worker->OnStreamEnded(to); });
    }
  }
  streams_.clear();
}

// ---- The operator and clients.

void SimCoordinator::LoadModel(const SimPlan& plan) {
  if (!up_) {
    return;
  }
  UnloadModel();
  ++store_.deployment;
  store_.epoch = 0;
  store_.wanted = true;
  store_.plan = plan;
  store_.kv_pages = world().scenario.kv_pages;
  deployment_ = std::make_unique<SimDeployment>(cluster_, &store_, sequence_numbers_.get(), life_);
  LoadIfPossible();
}

void SimCoordinator::UnloadModel() {
  if (up_ && deployment_ != nullptr) {
    world().Tell([&] { return "the operator unloads the model"; });
    deployment_->Unload(
        Error(absl::StatusCode::kUnavailable, "UNLOADED", "the model was taken off its workers"));
    deployment_ = nullptr;
    store_.wanted = false;
  }
}

bool SimCoordinator::ResizeModel(uint64_t kv_pages) {
  return up_ && deployment_ != nullptr && deployment_->Resize(kv_pages);
}

void SimCoordinator::Arm(const Fault& fault) {
  if (deployment_ != nullptr) {
    deployment_->Arm(fault);
  }
}

absl::Status SimCoordinator::Submit(SessionRequest request, std::shared_ptr<SessionSink> sink) {
  if (!up_) {
    return NotServing("COORDINATOR_LOST", "the coordinator does not answer");
  }
  if (deployment_ == nullptr || !deployment_->ready()) {
    return NotServing("MODEL_NOT_READY", "the model is not loaded");
  }
  return deployment_->Submit(std::move(request), std::move(sink));
}

bool SimCoordinator::Cancel(const std::string& key, const absl::Status& why) {
  return up_ && deployment_ != nullptr && deployment_->Cancel(key, why);
}

// ---- Membership.

void SimCoordinator::OnRegister(Machine machine, uint64_t incarnation) {
  if (!up_) {
    return;
  }
  SimWorker* worker = cluster_->worker(machine);
  v1::NodeInfo info;
  info.set_name(cluster_->worker(machine)->name());
  info.set_incarnation(incarnation);
  if (const absl::Status status = state_->Join(info, world().now()); !status.ok()) {
    world().Count(Rule::kNameTaken);
    Send(machine, [worker, incarnation] { worker->OnRefused(incarnation); });
    return;
  }
  streams_[machine] = incarnation;
  Send(machine,
       [worker, incarnation, term = store_.term] { worker->OnRegistered(incarnation, term); });
  LoadIfPossible();
}

void SimCoordinator::OnHeartbeat(Machine machine, uint64_t incarnation, uint64_t term) {
  if (!Knows(machine, incarnation) || term != store_.term) {
    return;
  }
  state_->Heartbeat(cluster_->worker(machine)->name(), incarnation, v1::Heartbeat(), world().now());
  SimWorker* worker = cluster_->worker(machine);
  Send(machine, [worker, incarnation, term] { worker->OnLeaseRenewed(incarnation, term); });
}

void SimCoordinator::OnWhoAnswers(Machine machine, uint64_t incarnation) {
  if (up_) {
    SimWorker* worker = cluster_->worker(machine);
    Send(machine, [worker, incarnation, term = store_.term] {
      worker->OnCoordinatorAnswers(incarnation, term);
    });
  }
}

void SimCoordinator::OnStreamEnded(Machine machine, uint64_t incarnation) {
  if (Knows(machine, incarnation)) {
    state_->Leave(cluster_->worker(machine)->name(), incarnation);
    Lose(machine);
  }
}

void SimCoordinator::ExpireLeases() {
  for (const std::string& name : state_->Expire(world().now())) {
    for (const auto& worker : cluster_->workers) {
      const auto machine = static_cast<Machine>(&worker - cluster_->workers.data());
      if (worker->name() == name && streams_.contains(machine)) {
        world().Count(Rule::kHeartbeatLapsed);
        Send(machine, [to = worker.get(), incarnation = streams_[machine]] {
          to->OnStreamEnded(incarnation);
        });
        Lose(machine);
      }
    }
  }
  world().After(world().scenario.lease / 10, [this, life = life_] {
    if (up_ && life == life_) {
      ExpireLeases();
      LoadIfPossible();
    }
  });
}

void SimCoordinator::Lose(Machine machine) {
  world().Tell([&] { return "the coordinator has lost " + cluster_->worker(machine)->name(); });
  streams_.erase(machine);
  if (deployment_ != nullptr) {
    deployment_->OnNodeLost(machine);
  }
}

void SimCoordinator::LoadIfPossible() {
  if (deployment_ == nullptr || deployment_->loaded()) {
    return;
  }
  for (const Machine machine : store_.plan.machines) {
    if (!streams_.contains(machine)) {
      return;
    }
  }
  deployment_->Load(streams_);
}

void SimCoordinator::OnLoaded(Machine machine, uint64_t incarnation, uint64_t deployment,
                              uint64_t epoch) {
  if (Knows(machine, incarnation) && Serves(deployment)) {
    deployment_->OnLoaded(machine, epoch);
  }
}

void SimCoordinator::OnFenceAck(Machine machine, uint64_t incarnation, uint64_t deployment,
                                uint64_t epoch, const absl::Status& status) {
  if (Knows(machine, incarnation) && Serves(deployment)) {
    deployment_->OnFenceAck(machine, epoch, status);
  }
}

void SimCoordinator::OnLinkFault(Machine machine, uint64_t incarnation, uint64_t deployment,
                                 uint64_t epoch, const absl::Status& status) {
  if (Knows(machine, incarnation) && Serves(deployment)) {
    deployment_->OnLinkFault(epoch, status);
  }
}

// ---- Results.

void SimCoordinator::OnLinkOpen(uint64_t life, uint64_t deployment, uint64_t epoch,
                                const std::function<void(bool)>& answer) {
  if (up_ && life == life_) {
    answer(Serves(deployment) && deployment_->AcceptsResults(epoch));
  }
}

void SimCoordinator::OnResult(uint64_t life, const std::shared_ptr<const ResultMessage>& result) {
  if (up_ && life == life_ && Serves(result->header.deployment())) {
    deployment_->OnResult(*result);
  }
}

void SimCoordinator::OnGarbledResult(uint64_t life, uint64_t deployment, uint64_t epoch) {
  if (up_ && life == life_ && Serves(deployment)) {
    world().Count(Rule::kBadChecksum);
    deployment_->OnLinkFault(epoch, Error(absl::StatusCode::kDataLoss, "FRAME_CRC",
                                          "a result's checksum does not match"));
  }
}

}  // namespace strata::sim
