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

void SimCoordinator::Say(Machine machine, uint64_t incarnation, v1::CoordinatorMessage message) {
  SimWorker* worker = cluster_->worker(machine);
  Send(machine, [worker, incarnation, message = std::move(message)] {
    worker->OnMessage(incarnation, message);
  });
}

void SimCoordinator::EndStream(Machine machine, uint64_t incarnation, const absl::Status& why) {
  SimWorker* worker = cluster_->worker(machine);
  Send(machine, [worker, incarnation, why] { worker->OnStreamEnded(incarnation, why); });
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
      EndStream(machine, incarnation, absl::UnavailableError("its control stream broke"));
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

void SimCoordinator::OnMessage(Machine machine, uint64_t incarnation,
                               const v1::WorkerMessage& message) {
  if (up_ && message.has_register_()) {
    OnRegister(machine, message.register_());
  }
  if (!Knows(machine, incarnation)) {
    return;
  }
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat:
      OnHeartbeat(machine, incarnation, message.heartbeat());
      break;
    case v1::WorkerMessage::kLoadProgress:
      if (Serves(message.load_progress().deployment())) {
        deployment_->OnLoadProgress(machine, message.load_progress());
      }
      break;
    case v1::WorkerMessage::kFenceAck:
      if (Serves(message.fence_ack().deployment())) {
        deployment_->OnFenceAck(machine, message.fence_ack());
      }
      break;
    case v1::WorkerMessage::kLinkFault:
      if (Serves(message.link_fault().deployment())) {
        deployment_->OnLinkFault(message.link_fault().epoch(),
                                 StatusOf(message.link_fault().error()));
      }
      break;
    default:
      break;
  }
}

void SimCoordinator::OnRegister(Machine machine, const v1::NodeInfo& info) {
  const uint64_t incarnation = info.incarnation();
  if (const absl::Status status = state_->Join(info, world().now()); !status.ok()) {
    world().Count(Rule::kNameTaken);
    EndStream(machine, incarnation, absl::AlreadyExistsError("its registration was refused"));
    return;
  }
  streams_[machine] = incarnation;
  v1::CoordinatorMessage message;
  message.mutable_registered()->set_term(store_.term);
  message.mutable_registered()->set_lease_ms(static_cast<uint32_t>(ToMs(state_->options().lease)));
  message.mutable_registered()->set_heartbeat_ms(
      static_cast<uint32_t>(ToMs(state_->options().heartbeat)));
  Say(machine, incarnation, std::move(message));
  LoadIfPossible();
}

void SimCoordinator::OnHeartbeat(Machine machine, uint64_t incarnation,
                                 const v1::Heartbeat& heartbeat) {
  if (heartbeat.term() != store_.term) {
    return;
  }
  state_->Heartbeat(NodeName(machine), incarnation, heartbeat, world().now());
  v1::CoordinatorMessage renewed;
  renewed.mutable_lease_renewed()->set_term(store_.term);
  Say(machine, incarnation, std::move(renewed));
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
        EndStream(machine, streams_[machine], absl::UnavailableError("its control stream broke"));
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

// ---- Results.

void SimCoordinator::OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer) {
  if (up_ && open.to_incarnation() == life_) {
    answer(Serves(open.deployment()) && deployment_->AcceptsResults(open));
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
