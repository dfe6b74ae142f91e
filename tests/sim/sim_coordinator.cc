#include "tests/sim/sim_coordinator.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/recorded_epochs.h"
#include "coordinator/deployment/serving.h"
#include "tests/sim/sim_coordinator_life.h"
#include "tests/sim/sim_drafts.h"
#include "tests/sim/sim_model.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

// As the event loop has it: timers are looked at as often as this at least.
constexpr nanoseconds kLongestWait = milliseconds(100);

std::string ShowToWorker(const v1::CoordinatorMessage& message) {
  if (message.has_load()) {
    return std::string("loads ") + (message.load().beside() ? "beside others " : "") + "stage " +
           std::to_string(message.load().stage()) + " of deployment " +
           std::to_string(message.load().deployment()) + ", epoch " +
           std::to_string(message.load().epoch()) + ", on ";
  }
  if (message.has_unload()) {
    return "unloads deployment " + std::to_string(message.unload().deployment()) + " from ";
  }
  if (message.has_keep_layer()) {
    return "has layer " + std::to_string(message.keep_layer().load().first_layer()) + " kept by ";
  }
  return message.has_fence() ? "fences epoch " + std::to_string(message.fence().epoch()) +
                                   " of what was loaded in " +
                                   std::to_string(message.fence().loaded_epoch()) + " at "
                             : "speaks to ";
}

}  // namespace

SimCoordinator::SimCoordinator(Cluster* cluster)
    : cluster_(cluster),
      model_(MakeSimModel(cluster->world->scenario)),
      store_(MakeMemoryStore("simulated")) {}

SimCoordinator::~SimCoordinator() = default;

Deployment* SimCoordinator::Model() const {
  return up() ? life_->deployments.OfModel(model_->name) : nullptr;
}

const Deployment* SimCoordinator::deployment() const { return Model(); }

// ---- Lives.

void SimCoordinator::Start() {
  incarnation_ = ++cluster_->incarnations;
  life_ = std::make_unique<Life>(this, store_->RaiseTerm().value(), world().scenario.lease);
  world().Tell([&] { return "the coordinator starts, term " + std::to_string(life_->term); });
  Restore();
  TickAgain();
}

void SimCoordinator::Restore() {
  const std::vector<StoredNode> nodes = store_->ListNodes().value();
  for (const StoredNode& node : nodes) {
    life_->cluster.Restore(node.info, node.draining, Now());
  }
  const std::vector<StoredDeployment> deployments = store_->ListDeployments().value();
  for (const StoredDeployment& stored : deployments) {
    v1::Plan plan = stored.plan;
    plan.set_epoch(FirstEpochOfTerm(life_->term, plan.epoch()));
    std::unique_ptr<Deployment> deployment =
        MakeDeployment(stored.id, std::move(plan), stored.options);
    deployment->OnRecorded(LastEpochOfTerm(life_->term), absl::OkStatus());
    life_->deployments.Add(std::move(deployment));
  }
  life_->deployments.LoadWhatWaits(life_->cluster);
}

std::unique_ptr<Deployment> SimCoordinator::MakeDeployment(uint64_t id, v1::Plan plan,
                                                           const v1::LoadOptions& options) {
  DeploymentHost* const host = this;
  return std::make_unique<Deployment>(id, model_, std::move(plan), options, RotaryBlob(),
                                      DeploymentOptionsOf(world().scenario), host);
}

void SimCoordinator::Stop(bool silent) {
  std::unique_ptr<Life> ended = std::move(life_);  // From here on nobody hears of it.
  if (!silent) {
    ended->streams.CloseAll();
  }
}

// ---- Time, and the event loop.

void SimCoordinator::Turn(uint64_t incarnation, const std::function<void()>& what) {
  if (up() && incarnation == incarnation_) {
    what();
    Tick(/*by_time=*/false);
  }
}

void SimCoordinator::TickAgain() {
  Tick(/*by_time=*/true);
  world().After(kLongestWait, [this, incarnation = incarnation_] {
    if (up() && incarnation == incarnation_) {
      TickAgain();
    }
  });
}

void SimCoordinator::Tick(bool by_time) {
  life_->expiring = true;
  life_->members.Expire(Now());
  life_->expiring = false;
  if (life_->deployments.Tick(Now(), /*reading=*/false)) {
    life_->deployments.LoadWhatWaits(life_->cluster);
  }
  for (const uint64_t id : life_->deployments.WantPlacement(Now())) {
    SearchNodes(id);
  }
  for (const uint64_t id : life_->deployments.WantBetter(Now())) {
    SearchBetter(id);
  }
  if (world().scenario.standby > 0) life_->standbys.Tick(Now());
  Look(by_time);
  ScheduleWake();
}

void SimCoordinator::Look(bool by_time) {
  std::erase_if(life_->watches, [this](const auto& watch) {
    return life_->deployments.Find(watch.first) == nullptr;
  });
  for (const auto& [id, deployment] : life_->deployments.all()) {
    life_->watches.try_emplace(id, cluster_, deployment.get()).first->second.Look(by_time);
  }
}

void SimCoordinator::ScheduleWake() {
  const std::optional<TimePoint> wake = life_->deployments.NextWake();
  if (!wake.has_value() || (life_->wake.has_value() && *life_->wake <= *wake)) {
    return;
  }
  life_->wake = wake;
  world().events.At(*wake, [this, incarnation = incarnation_, at = *wake] {
    if (up() && incarnation == incarnation_ && life_->wake == at) {
      life_->wake.reset();
      Tick(/*by_time=*/true);
    }
  });
}

// ---- The operator and clients.

void SimCoordinator::LoadModel(const v1::Plan& plan) {
  if (!up()) {
    return;
  }
  UnloadModel();
  Turn(incarnation_, [&] {
    const uint64_t pages = world().scenario.kv_pages;
    std::unique_ptr<Deployment> deployment =
        MakeDeployment(store_->NextDeploymentId().value(), WithPages(plan, pages),
                       LoadOptionsOf(world().scenario, pages));
    const StoredDeployment stored = deployment->Record();
    STRATA_CHECK(store_->SaveDeployment(stored).ok());
    deployment->OnRecorded(stored.plan.epoch(), absl::OkStatus());
    life_->deployments.Add(std::move(deployment));
    life_->deployments.LoadWhatWaits(life_->cluster);
  });
}

void SimCoordinator::UnloadModel() {
  const Deployment* deployment = Model();
  if (deployment == nullptr) {
    return;
  }
  world().Tell([&] { return "the operator unloads the model"; });
  Turn(incarnation_, [&, id = deployment->id()] {
    STRATA_CHECK(store_->RemoveDeployment(id).ok());
    life_->deployments.Unload(id, Error(absl::StatusCode::kUnavailable, "UNLOADED",
                                        "the model was taken off its workers"));
  });
}

bool SimCoordinator::ResizeModel(uint64_t kv_pages) {
  Deployment* deployment = Model();
  if (deployment == nullptr) {
    return false;
  }
  absl::Status status;
  Turn(incarnation_, [&] {
    const v1::Plan plan = WithPages(deployment->plan(), kv_pages);
    const v1::LoadOptions options = LoadOptionsOf(world().scenario, kv_pages);
    status = deployment->CheckResize(plan);
    if (status.ok()) {
      const StoredDeployment stored = deployment->RecordOf(plan, options);
      STRATA_CHECK(store_->SaveDeployment(stored).ok());
      deployment->OnRecorded(stored.plan.epoch(), absl::OkStatus());
      status = deployment->Resize(plan, options);
    }
  });
  if (ReasonOf(status) == "KV_IN_USE") {
    world().Tell([&] { return "refused: " + std::string(status.message()); });
    world().Count(Rule::kResizeRefused);
  }
  return status.ok();
}

void SimCoordinator::Arm(const Fault& fault) {
  if (fault.kind == FaultKind::kFailLoad) {
    ++loads_to_fail_;
  } else if (const Deployment* deployment = Model()) {
    life_->links.Arm(fault, deployment->id());
  }
}

absl::Status SimCoordinator::Submit(SessionRequest request, std::shared_ptr<SessionSink> sink) {
  absl::Status status =
      Error(absl::StatusCode::kUnavailable, "COORDINATOR_LOST", "the coordinator does not answer")
          .Hint("send it again in a moment");
  Turn(incarnation_, [&] {
    const Serving serving = ServingOf(life_->deployments, model_->name);
    status = serving.engine == nullptr
                 ? serving.problem
                 : serving.engine->Submit(std::move(request), std::move(sink), Now());
  });
  return status;
}

bool SimCoordinator::Cancel(const std::string& key, const absl::Status& why) {
  bool found = false;
  Turn(incarnation_, [&] {
    Deployment* deployment = life_->deployments.WithRequest(key);
    found = deployment != nullptr && deployment->engine()->Cancel(key, why, Now());
  });
  return found;
}

// ---- Members.

// What is said into it travels as soon as it is said.
std::shared_ptr<NodeChannel> SimCoordinator::OpenChannel(Machine machine, uint64_t incarnation) {
  auto self = std::make_shared<std::weak_ptr<NodeChannel>>();
  auto channel = std::make_shared<NodeChannel>([cluster = cluster_, machine, incarnation, self] {
    const std::shared_ptr<NodeChannel> channel = self->lock();
    SimWorker* worker = cluster->worker(machine);
    while (auto message = channel->TryNext()) {
      cluster->world->Tell(
          [&] { return "the coordinator " + ShowToWorker(*message) + worker->name(); });
      cluster->network->SendControl(kCoordinatorMachine, machine,
                                    [worker, incarnation, message = *std::move(message)] {
                                      worker->OnMessage(incarnation, message);
                                    });
    }
    if (channel->closed()) {
      cluster->network->SendControl(kCoordinatorMachine, machine, [worker, incarnation] {
        worker->OnStreamEnded(incarnation, absl::UnavailableError("its control stream ended"));
      });
    }
  });
  *self = channel;
  return channel;
}

void SimCoordinator::OnMessage(Machine machine, uint64_t incarnation,
                               const v1::WorkerMessage& message) {
  Turn(incarnation_, [&] {
    if (message.has_register_()) {
      OnRegister(machine, message.register_());
    } else if (message.has_layer_kept()) {
      life_->standbys.OnKept(NodeName(machine), incarnation, message.layer_kept(), Now());
    } else if (life_->streams.Speaks(NodeName(machine), incarnation)) {
      life_->members.OnMessage(NodeName(machine), incarnation, Heard(machine, incarnation, message),
                               Now());
    }
  });
}

v1::WorkerMessage SimCoordinator::Heard(Machine machine, uint64_t incarnation,
                                        v1::WorkerMessage message) {
  const auto leaving = leaving_.find(machine);
  if (message.has_heartbeat() && leaving != leaving_.end() && leaving->second == incarnation) {
    message.mutable_heartbeat()->set_leaving(true);
  }
  if (message.has_load_progress() && loads_to_fail_ > 0 &&
      message.load_progress().phase() == v1::LoadProgress::PHASE_READY) {
    --loads_to_fail_;
    world().Count(FaultKind::kFailLoad);
    world().Tell([&] { return "FAULT: " + NodeName(machine) + " cannot load its stage"; });
    message.mutable_load_progress()->set_phase(v1::LoadProgress::PHASE_FAILED);
    *message.mutable_load_progress()->mutable_error() =
        Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT", "no room").Detail();
  }
  return message;
}

void SimCoordinator::OnRegister(Machine machine, const v1::NodeInfo& info) {
  const std::shared_ptr<NodeChannel> channel = OpenChannel(machine, info.incarnation());
  if (!life_->members.Join(info, channel, Now()).ok()) {
    world().Count(Rule::kNameTaken);
    channel->Close();
    return;
  }
  life_->channels[info.name()] = channel;
  STRATA_CHECK(store_->SaveNode(info.name(), info, /*draining=*/false).ok());
  v1::CoordinatorMessage welcome;
  *welcome.mutable_registered() = life_->members.Welcome();
  channel->Send(std::move(welcome));
  life_->members.OnJoined(info.name());
}

void SimCoordinator::OnStreamEnded(Machine machine, uint64_t incarnation) {
  Turn(incarnation_, [&] {
    const std::string node = NodeName(machine);
    if (life_->streams.Speaks(node, incarnation)) {
      life_->members.OnStreamEnded(node, incarnation, life_->channels[node]);
    }
  });
}

void SimCoordinator::OnWhoAnswers(Machine machine, uint64_t incarnation) {
  if (up()) {
    SimWorker* worker = cluster_->worker(machine);
    cluster_->network->SendControl(kCoordinatorMachine, machine,
                                   [worker, incarnation, term = life_->term] {
                                     worker->OnCoordinatorAnswers(incarnation, term);
                                   });
  }
}

void SimCoordinator::OnLost(const std::string& node) {
  world().Tell([&] { return "the coordinator has lost " + node; });
  if (life_->expiring) {
    world().Count(Rule::kHeartbeatLapsed);
  }
}

// ---- Weights.

void SimCoordinator::OnBlobAsked(
    const WeightHolders::Ask& ask,
    const std::function<void(const std::vector<v1::BlobSource>&)>& answer) {
  if (!up()) {
    return;
  }
  const auto say = [network = cluster_->network, machine = MachineOf(ask.node),
                    answer](const std::vector<v1::BlobSource>& sources) {
    network->SendControl(kCoordinatorMachine, machine, [answer, sources] { answer(sources); });
  };
  auto sending = std::make_unique<WeightHolders::Sending>(life_->cluster.holders(), ask);
  if (!sending->sources().empty()) {
    say(sending->sources());
    return;
  }
  const uint64_t number = ++life_->newest_sending;
  life_->sendings[number] = std::move(sending);
  world().After(milliseconds(world().random.Between(2, 40)),
                [this, incarnation = incarnation_, number, say] {
                  Turn(incarnation, [&] {
                    life_->sendings.at(number)->SentAll();
                    life_->sendings.erase(number);
                    say({});
                  });
                });
}

bool SimCoordinator::KeepsAll() const {
  const Deployment* deployment = Model();
  return deployment != nullptr && deployment->state() == DeploymentState::kReady &&
         deployment->serves() && !deployment->prepares() && life_->standbys.Whole(*deployment);
}

std::vector<v1::StandbyLayers> SimCoordinator::Kept() const {
  const Deployment* deployment = Model();
  return deployment == nullptr ? std::vector<v1::StandbyLayers>()
                               : life_->standbys.Describe(deployment->id());
}

// ---- Links of steps.

void SimCoordinator::OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer) {
  Turn(open.to_incarnation(), [&] { answer(life_->links.Accept(open)); });
}

void SimCoordinator::OnResult(uint64_t incarnation,
                              const std::shared_ptr<const ResultMessage>& result) {
  Turn(incarnation, [&] { life_->links.OnResult(*result); });
}

void SimCoordinator::OnGarbledResult(uint64_t incarnation, uint64_t deployment, uint64_t epoch) {
  Turn(incarnation, [&] { life_->links.OnGarbledResult(deployment, epoch); });
}

// ---- DeploymentHost.

bool SimCoordinator::SendToNode(const std::string& node, uint64_t incarnation,
                                v1::CoordinatorMessage message) {
  return life_->streams.Send(node, incarnation, std::move(message));
}

void SimCoordinator::OpenLink(
    StepLinkRequest request,
    std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
    std::function<void(const absl::Status& status)> /*on_broken*/) {
  life_->links.Open(std::move(request), std::move(on_opened));
}

SequenceNumbers* SimCoordinator::sequence_numbers() { return &life_->sequence_numbers; }

// It answers when it likes: at times long after nobody waits any more. Drawn apart, so that
// scenarios without one stay as they are.
bool SimCoordinator::AskDraftModel(uint64_t deployment, GuessRequest request) {
  Random drawn(Mix64(world().scenario.seed ^ world().events.ran() << 8 ^ request.tokens.size()));
  if (drawn.OneIn(16)) {
    return false;
  }
  const nanoseconds takes = drawn.OneIn(16) ? nanoseconds(std::chrono::seconds(2))
                                            : std::chrono::microseconds(drawn.Between(1, 3000));
  const bool fails = drawn.OneIn(16);
  world().After(takes, [this, incarnation = incarnation_, deployment, fails, request] {
    Turn(incarnation, [&] {
      const Deployment* asking = life_->deployments.Find(deployment);
      if (asking != nullptr && asking->engine() != nullptr) {
        world().Count(Rule::kGuessed);
        asking->engine()->OnGuesses(
            request.key, static_cast<uint32_t>(request.tokens.size()),
            fails ? std::vector<uint32_t>() : GuessesFor(world().scenario, request), Now());
      }
    });
  });
  return true;
}

// A disk takes its time, and a process that ends meanwhile has recorded nothing.
void SimCoordinator::RecordLater(uint64_t deployment) {
  if (!life_->unrecorded.insert(deployment).second) {
    return;
  }
  const nanoseconds takes = milliseconds(world().random.Between(1, 20));
  world().After(takes, [this, incarnation = incarnation_, deployment] {
    Turn(incarnation, [&] { Record(deployment); });
  });
}

void SimCoordinator::Record(uint64_t id) {
  life_->unrecorded.erase(id);
  if (Deployment* deployment = life_->deployments.Find(id)) {
    const StoredDeployment stored = deployment->Record();
    deployment->OnRecorded(stored.plan.epoch(), store_->SaveDeployment(stored));
  }
}

}  // namespace strata::sim
