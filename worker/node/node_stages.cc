#include "worker/node/node_stages.h"

#include <utility>
#include <vector>

#include "common/status.h"
#include "worker/node/same_load.h"
#include "worker/node/switch_policy.h"

namespace strata {

NodeStages::NodeStages(std::string node, NodeHost* host) : node_(std::move(node)), host_(host) {}

// ---- Lives.

void NodeStages::BeginLife(uint64_t incarnation) {
  incarnation_ = incarnation;
  alive_ = true;
}

void NodeStages::EndLife() {
  alive_ = false;
  while (!beside_.empty()) {
    RetireBeside(beside_.begin()->first);
  }
  while (!giving_.empty()) {
    RetireGiving(giving_.begin()->first);
  }
  while (!placed_.empty()) {
    const StageId id = placed_.begin()->second;
    placed_.erase(placed_.begin());
    Retire(id, /*answers=*/false);
  }
}

v1::Heartbeat NodeStages::Heartbeat(uint64_t term) const {
  v1::Heartbeat heartbeat;
  heartbeat.set_term(term);
  heartbeat.set_leaving(leaving_);
  heartbeat.set_frames_discarded(frames_discarded_);
  return heartbeat;
}

void NodeStages::Say(const Stage& stage, v1::WorkerMessage message) {
  if (alive_ && stage.incarnation == incarnation_) {
    host_->Say(std::move(message));
  }
}

// ---- What the coordinator says.

bool NodeStages::OnMessage(const v1::CoordinatorMessage& message) {
  if (!message.has_load() && !message.has_unload() && !message.has_fence()) {
    return false;
  }
  if (!alive_) {
    return true;
  }
  if (message.has_load()) {
    OnLoad(message.load());
  } else if (message.has_unload()) {
    OnUnload(message.unload());
  } else {
    OnFence(message.fence());
  }
  return true;
}

void NodeStages::OnLoad(const v1::Load& load) {
  const StageId id = ++newest_;
  Stage& stage = stages_[id];
  stage.load = load;
  stage.incarnation = incarnation_;
  if (load.beside() && placed_.contains(load.deployment())) {
    OnLoadBeside(id, load);
    return;
  }
  RetireBeside(load.deployment());
  RetireGiving(load.deployment());
  const auto [placed, first] = placed_.try_emplace(load.deployment(), id);
  const StageId old = first ? 0 : std::exchange(placed->second, id);
  const bool same = old != 0 && SameButForKv(stages_.at(old).load, load);
  host_->Add(id, load, same ? old : 0);
  if (old != 0) {
    Retire(old, /*answers=*/false);
  }
  BeginWaiting();
}

void NodeStages::OnLoadBeside(StageId id, const v1::Load& load) {
  RetireBeside(load.deployment());
  RetireGiving(load.deployment());
  beside_[load.deployment()] = id;
  host_->Add(id, load, 0);
  BeginWaiting();
}

void NodeStages::OnUnload(const v1::Unload& unload) {
  const uint64_t deployment = unload.deployment();
  const auto meant = [&](StageId id) {
    return unload.loaded_epoch() == 0 || stages_.at(id).load.epoch() == unload.loaded_epoch();
  };
  if (const auto beside = beside_.find(deployment);
      beside != beside_.end() && meant(beside->second)) {
    RetireBeside(deployment);
  }
  if (const auto giving = giving_.find(deployment);
      giving != giving_.end() && meant(giving->second)) {
    RetireGiving(deployment);
  }
  const auto placed = placed_.find(deployment);
  if (placed == placed_.end() || !meant(placed->second)) {
    SayUnloaded(deployment);
    return;
  }
  const StageId id = placed->second;
  placed_.erase(placed);
  Retire(id, /*answers=*/true);
}

void NodeStages::TakePlace(const v1::Fence& fence) {
  const auto beside = beside_.find(fence.deployment());
  if (beside == beside_.end()) {
    return;
  }
  const StageId id = beside->second;
  if (stages_.at(id).state != State::kLoaded ||
      !switch_policy::TakesPlace(fence.loaded_epoch(), stages_.at(id).load.epoch())) {
    return;
  }
  beside_.erase(beside);
  const StageId old = std::exchange(placed_[fence.deployment()], id);
  if (old == 0) {
    return;
  }
  if (stages_.at(old).gives) {
    RetireGiving(fence.deployment());
    giving_[fence.deployment()] = old;
  } else {
    Retire(old, /*answers=*/false);
  }
}

StageId NodeStages::LinkedAhead(const v1::Fence& fence) const {
  const auto meant = [&](StageId id) {
    return stages_.at(id).state == State::kLoaded &&
           switch_policy::IsMeant(fence.loaded_epoch(), stages_.at(id).load.epoch());
  };
  const auto beside = beside_.find(fence.deployment());
  if (beside != beside_.end() && meant(beside->second)) {
    return beside->second;
  }
  const StageId id = Loaded(fence.deployment());
  return id != 0 && meant(id) ? id : 0;
}

void NodeStages::OnFence(const v1::Fence& fence) {
  if (!fence.ahead()) {
    TakePlace(fence);
  }
  const StageId id = fence.ahead() ? LinkedAhead(fence) : Loaded(fence.deployment());
  if (id != 0 && switch_policy::IsMeant(fence.loaded_epoch(), stages_.at(id).load.epoch())) {
    stages_.at(id).ahead = fence.ahead() ? fence.epoch() : 0;
    host_->Fence(id, fence);
    return;
  }
  v1::WorkerMessage message;
  message.mutable_fence_ack()->set_deployment(fence.deployment());
  message.mutable_fence_ack()->set_epoch(fence.epoch());
  message.mutable_fence_ack()->set_ahead(fence.ahead());
  *message.mutable_fence_ack()->mutable_error() = DetailOf(NotLoaded(fence.deployment()));
  host_->Say(std::move(message));
}

void NodeStages::SayUnloaded(uint64_t deployment) {
  v1::WorkerMessage message;
  message.mutable_unload_done()->set_deployment(deployment);
  host_->Say(std::move(message));
}

// ---- Loading and taking off.

void NodeStages::BeginWaiting() {
  if (retiring_ > 0) {
    return;
  }
  for (const StageId id : Placed()) {
    Stage& stage = stages_.at(id);
    if (stage.state == State::kWaiting) {
      stage.state = State::kLoading;
      host_->BeginLoad(id);
    }
  }
}

void NodeStages::Retire(StageId id, bool answers) {
  Stage& stage = stages_.at(id);
  stage.retired = true;
  stage.answers = answers;
  ++retiring_;
  if (stage.state == State::kWaiting) {
    stage.state = State::kFailed;
    v1::LoadProgress progress;
    progress.set_deployment(stage.load.deployment());
    progress.set_epoch(stage.load.epoch());
    SayFailed(id, Error(absl::StatusCode::kCancelled, "CANCELLED", "loading was cancelled"),
              std::move(progress));
  }
  host_->TakeOff(id);
}

void NodeStages::RetireBeside(uint64_t deployment) { RetireOf(deployment, &beside_); }

void NodeStages::RetireGiving(uint64_t deployment) { RetireOf(deployment, &giving_); }

void NodeStages::RetireOf(uint64_t deployment, std::map<uint64_t, StageId>* stages) {
  if (const auto stage = stages->find(deployment); stage != stages->end()) {
    const StageId id = stage->second;
    stages->erase(stage);
    Retire(id, /*answers=*/false);
  }
}

void NodeStages::OnProgress(StageId stage, const v1::LoadProgress& progress) {
  const auto it = stages_.find(stage);
  if (it == stages_.end() || it->second.state != State::kLoading) {
    return;
  }
  std::string text = progress.SerializeAsString();
  if (text == it->second.reported) {
    return;
  }
  it->second.reported = std::move(text);
  v1::WorkerMessage message;
  *message.mutable_load_progress() = progress;
  Say(it->second, std::move(message));
}

void NodeStages::OnLoaded(StageId stage, v1::LoadProgress progress, const absl::Status& status,
                          uint64_t bytes) {
  const auto it = stages_.find(stage);
  if (it == stages_.end() || it->second.state != State::kLoading) {
    return;
  }
  it->second.bytes = bytes;
  it->second.state = status.ok() ? State::kLoaded : State::kFailed;
  if (!status.ok()) {
    SayFailed(stage, status, std::move(progress));
    return;
  }
  progress.set_phase(v1::LoadProgress::PHASE_READY);
  v1::WorkerMessage message;
  *message.mutable_load_progress() = std::move(progress);
  Say(it->second, std::move(message));
}

void NodeStages::SayFailed(StageId id, const absl::Status& status, v1::LoadProgress progress) {
  v1::ErrorDetail detail = DetailOf(status);
  detail.set_node(node_);
  *progress.mutable_error() = std::move(detail);
  progress.set_phase(v1::LoadProgress::PHASE_FAILED);
  v1::WorkerMessage message;
  *message.mutable_load_progress() = std::move(progress);
  Say(stages_.at(id), std::move(message));
}

void NodeStages::OnGone(StageId stage, uint64_t frames_discarded) {
  const auto it = stages_.find(stage);
  if (it == stages_.end() || !it->second.retired) {
    return;
  }
  const Stage gone = std::move(it->second);
  stages_.erase(it);
  frames_discarded_ += frames_discarded;
  --retiring_;
  if (gone.answers && alive_ && gone.incarnation == incarnation_) {
    SayUnloaded(gone.load.deployment());
  }
  BeginWaiting();
}

// ---- What stands.

absl::Status NodeStages::NotLoaded(uint64_t deployment) const {
  return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT",
               "deployment " + std::to_string(deployment) + " is not loaded here")
      .Node(node_);
}

StageId NodeStages::Loaded(uint64_t deployment) const {
  const auto placed = placed_.find(deployment);
  if (placed == placed_.end() || stages_.at(placed->second).state != State::kLoaded) {
    return 0;
  }
  return placed->second;
}

StageId NodeStages::LoadedBy(uint64_t deployment, uint64_t loaded_epoch) const {
  for (const StageId id : Placed()) {
    const Stage& stage = stages_.at(id);
    if (stage.load.deployment() == deployment && stage.load.epoch() == loaded_epoch &&
        stage.state == State::kLoaded) {
      return id;
    }
  }
  return 0;
}

StageId NodeStages::GivesKv(uint64_t deployment, uint64_t loaded_epoch) {
  const StageId id = LoadedBy(deployment, loaded_epoch);
  if (id != 0) {
    stages_.at(id).gives = true;
  }
  return id;
}

std::vector<StageId> NodeStages::Placed() const {
  std::vector<StageId> stages;
  for (const auto& [deployment, id] : placed_) {
    stages.push_back(id);
    for (const auto* others : {&beside_, &giving_}) {
      if (const auto other = others->find(deployment); other != others->end()) {
        stages.push_back(other->second);
      }
    }
  }
  return stages;
}

absl::StatusOr<StageId> NodeStages::Reaches(const v1::LinkOpen& open) const {
  const StageId id = Loaded(open.deployment());
  if (id == 0) {
    return NotLoaded(open.deployment());
  }
  if (const auto beside = beside_.find(open.deployment());
      beside != beside_.end() && open.epoch() != 0 &&
      stages_.at(beside->second).ahead == open.epoch()) {
    return beside->second;
  }
  // The fence by which the other stage takes this one's place is on its way.
  if (beside_.contains(open.deployment()) && open.to_stage() != stages_.at(id).load.stage()) {
    return Error(absl::StatusCode::kFailedPrecondition, "EPOCH_NOT_LOADED",
                 "a link to stage " + std::to_string(open.to_stage()) + " of deployment " +
                     std::to_string(open.deployment()) + " came before its fence")
        .Node(node_);
  }
  return id;
}

bool NodeStages::Retired(StageId stage) const {
  const auto it = stages_.find(stage);
  return it == stages_.end() || it->second.retired;
}

void NodeStages::SetBytes(StageId stage, uint64_t bytes) {
  if (const auto it = stages_.find(stage); it != stages_.end()) {
    it->second.bytes = bytes;
  }
}

void NodeStages::SetHostBytes(StageId stage, uint64_t bytes) {
  if (const auto it = stages_.find(stage); it != stages_.end()) {
    it->second.host_bytes = bytes;
  }
}

uint64_t NodeStages::BytesBeside(StageId stage) const {
  uint64_t bytes = 0;
  for (const StageId id : Placed()) {
    bytes += id == stage ? 0 : stages_.at(id).bytes;
  }
  return bytes;
}

uint64_t NodeStages::HostBytesBeside(StageId stage) const {
  uint64_t bytes = 0;
  for (const StageId id : Placed()) {
    bytes += id == stage ? 0 : stages_.at(id).host_bytes;
  }
  return bytes;
}

}  // namespace strata
