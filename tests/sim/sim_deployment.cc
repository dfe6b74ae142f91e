#include "tests/sim/sim_deployment.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "tests/sim/exact_model.h"
#include "tests/sim/page_recount.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {
namespace {

constexpr nanoseconds kDialPause = milliseconds(20);

uint64_t PagesFor(uint64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// Nothing runs, and the ledger says that every page is free, or cached.
bool IsIdle(const EngineSnapshot& snapshot) {
  return snapshot.state == PipelineState::kRunning && snapshot.steps_in_flight == 0 &&
         snapshot.sessions.empty() &&
         std::all_of(snapshot.kv.begin(), snapshot.kv.end(),
                     [](const KvSnapshot& kv) { return kv.free + kv.cached == kv.total; });
}

}  // namespace

SimPlan DrawPlan(const Scenario& scenario, Random* random) {
  SimPlan plan;
  std::vector<Machine> machines;
  for (uint32_t i = 0; i < scenario.workers; ++i) {
    machines.push_back(static_cast<Machine>(i));
  }
  for (uint32_t i = 0; i < scenario.stages; ++i) {
    std::swap(machines[i], machines[random->Between(i, scenario.workers - 1)]);
    plan.machines.push_back(machines[i]);
  }
  std::set<uint32_t> cuts = {0, scenario.layers};
  while (cuts.size() < scenario.stages + 1) {
    cuts.insert(random->Below(scenario.layers));
  }
  plan.first_layers.assign(cuts.begin(), cuts.end());
  return plan;
}

SimDeployment::SimDeployment(Cluster* cluster, SimStore* store, SequenceNumbers* sequence_numbers,
                             uint64_t life)
    : cluster_(cluster),
      store_(store),
      sequence_numbers_(sequence_numbers),
      life_(life),
      meddler_(cluster->world, FingerprintRoot(store->deployment, kWeightsDigest, kNumericsClass,
                                               /*adapter_digest=*/"", /*rotary_variant=*/0)) {}

SimDeployment::~SimDeployment() { *alive_ = false; }

bool SimDeployment::Uses(Machine machine) const {
  const auto& machines = store_->plan.machines;
  return std::find(machines.begin(), machines.end(), machine) != machines.end();
}

v1::Load SimDeployment::LoadOf(uint32_t stage) const {
  const Scenario& scenario = world().scenario;
  v1::Load load;
  load.set_deployment(id());
  load.set_epoch(store_->epoch);
  load.set_weights_digest(kWeightsDigest);
  load.set_numerics_class(kNumericsClass);
  load.set_stage(stage);
  load.set_stage_count(stage_count());
  load.set_first_layer(store_->plan.first_layers[stage]);
  load.set_last_layer(store_->plan.first_layers[stage + 1] - 1);
  load.set_context(scenario.context);
  load.add_kv_pages(store_->kv_pages);
  load.set_max_batch_tokens(scenario.max_batch_tokens);
  load.set_max_batch_items(scenario.max_batch_items);
  load.set_next_incarnation(life_);
  if (stage + 1 < stage_count()) {
    const Machine next = store_->plan.machines[stage + 1];
    load.set_next_node(NodeName(next));
    load.set_next_address(NodeName(next));
    load.set_next_incarnation(incarnations_.at(next));
  }
  load.set_step_timeout_ms(static_cast<uint32_t>(ToMs(scenario.step_timeout / 2)));
  return load;
}

void SimDeployment::Say(Machine machine, v1::CoordinatorMessage message) {
  SimWorker* worker = cluster_->worker(machine);
  cluster_->network->SendControl(
      kCoordinatorMachine, machine,
      [worker, to = incarnations_.at(machine), message = std::move(message)] {
        worker->OnMessage(to, message);
      });
}

void SimDeployment::Load(const std::map<Machine, uint64_t>& incarnations) {
  if (!awaiting_) {
    StopEngine(
        Error(absl::StatusCode::kUnavailable, "RELOADING", "the model is being loaded again"));
  }
  ++store_->epoch;
  incarnations_ = incarnations;
  state_ = State::kLoading;
  SendLoads();
}

bool SimDeployment::Resize(uint64_t kv_pages) {
  if (state_ != State::kReady) {
    return false;
  }
  if (const absl::Status fits = engine_->CheckFits(EngineStages(kv_pages)); !fits.ok()) {
    world().Tell([&] { return "refused: " + std::string(fits.message()); });
    world().Count(Rule::kResizeRefused);
    return false;
  }
  ++store_->epoch;
  store_->kv_pages = kv_pages;
  first_link_epoch_ = 0;
  unfenced_.clear();
  state_ = State::kResizing;
  engine_->Suspend(EngineStages(kv_pages), world().now());
  SendLoads();
  Watch();
  return true;
}

std::vector<EngineStage> SimDeployment::EngineStages(uint64_t kv_pages) const {
  std::vector<EngineStage> stages;
  const std::vector<uint32_t>& first = store_->plan.first_layers;
  for (Machine machine : store_->plan.machines) {
    const uint32_t layers = first[stages.size() + 1] - first[stages.size()];
    stages.push_back({.node = cluster_->worker(machine)->name(),
                      .kv_pages = {kv_pages},
                      .predicted_ms = 0.2,
                      .layers = world().scenario.waves ? layers : 0});
  }
  return stages;
}

void SimDeployment::SendLoads() {
  loading_ = {store_->plan.machines.begin(), store_->plan.machines.end()};
  world().Tell([&] {
    return "the coordinator loads deployment " + std::to_string(id()) + ", epoch " +
           std::to_string(store_->epoch);
  });
  for (uint32_t s = 0; s < stage_count(); ++s) {
    v1::CoordinatorMessage message;
    *message.mutable_load() = LoadOf(s);
    Say(store_->plan.machines[s], std::move(message));
  }
}

void SimDeployment::Unload(const absl::Status& why) {
  StopEngine(why);
  TellWorkersToUnload();
}

void SimDeployment::TellWorkersToUnload() {
  state_ = State::kWaiting;
  for (const auto& [machine, incarnation] : incarnations_) {
    if (Uses(machine)) {
      v1::CoordinatorMessage message;
      message.mutable_unload()->set_deployment(id());
      Say(machine, std::move(message));
    }
  }
}

void SimDeployment::Fail(const absl::Status& why) {
  world().Tell([&] { return "the deployment ends: " + std::string(why.message()); });
  Unload(why);
}

void SimDeployment::OnNodeLost(Machine machine) {
  if (!Uses(machine) || !loaded()) {
    return;
  }
  world().Count(Rule::kNodeLost);
  const std::string& name = cluster_->worker(machine)->name();
  const absl::Status why = Error(absl::StatusCode::kUnavailable, "NODE_LOST",
                                 "node '" + name + "', which holds layers, is lost")
                               .Node(name);
  if (engine_ == nullptr || state_ == State::kResizing || engine_->live_sessions() == 0) {
    Fail(why);
    return;
  }
  if (!awaiting_) {
    first_link_epoch_ = 0;
    unfenced_.clear();
    awaiting_ = true;
    engine_->LoseStages(why, world().now());
  }
  TellWorkersToUnload();
  Watch();
}

void SimDeployment::OnLoadProgress(Machine machine, const v1::LoadProgress& progress) {
  const bool loading = state_ == State::kLoading || state_ == State::kResizing;
  if (!loading || loading_.empty() || progress.epoch() != store_->epoch ||
      progress.phase() != v1::LoadProgress::PHASE_READY) {
    return;
  }
  loading_.erase(machine);
  if (!loading_.empty()) {
    return;
  }
  if (state_ == State::kLoading && !awaiting_) {
    StartEngine();
    return;
  }
  if (std::exchange(awaiting_, false)) {
    world().Count(Rule::kAwaited);
  } else {
    state_ = State::kReady;
  }
  if (engine_->live_sessions() > 0) {
    world().Count(Rule::kResumed);
  }
  engine_->Resume(progress.epoch(), world().now());
  Watch();
}

void SimDeployment::StartEngine() {
  const Scenario& scenario = world().scenario;
  EngineConfig config;
  config.deployment = id();
  config.epoch = store_->epoch;
  config.stages = EngineStages(store_->kv_pages);
  config.kv_groups = {KvGroupSpec{}};
  config.vocab = kVocab;
  config.context = scenario.context;
  config.weights_digest = kWeightsDigest;
  config.numerics_class = kNumericsClass;
  config.max_batch_tokens = scenario.max_batch_tokens;
  config.max_batch_items = scenario.max_batch_items;
  config.max_sessions = scenario.max_sessions;
  config.kv_watermark = scenario.kv_watermark;
  config.prefix_cache = scenario.prefix_cache;
  config.max_queued_requests = scenario.max_queued_requests;
  config.step_timeout = scenario.step_timeout;
  config.recovery_timeout = scenario.step_timeout;
  if (scenario.waves) {
    config.inter_token_target = nanoseconds(1);
  }
  engine_ = std::make_unique<Engine>(std::move(config), sequence_numbers_, this);
  seen_ = EngineCounters();
  was_down_ = false;
  wake_.reset();
  engine_->Start(world().now());
  Watch();
}

void SimDeployment::StopEngine(const absl::Status& why) {
  awaiting_ = false;
  unfenced_.clear();
  first_link_epoch_ = 0;
  if (engine_ != nullptr) {
    engine_->Stop(why, world().now());
    engine_ = nullptr;
  }
}

absl::Status SimDeployment::Submit(SessionRequest request, std::shared_ptr<SessionSink> sink) {
  const absl::Status status = engine_->Submit(std::move(request), std::move(sink), world().now());
  Watch();
  return status;
}

bool SimDeployment::Cancel(const std::string& key, const absl::Status& why) {
  const bool found = engine_ != nullptr && engine_->Cancel(key, why, world().now());
  Watch();
  return found;
}

bool SimDeployment::Idle() const {
  return engine_ != nullptr && IsIdle(engine_->Snapshot(world().now()));
}

// ---- Fences, links, frames.

void SimDeployment::SendFence(uint64_t epoch) {
  fence_epoch_ = epoch;
  store_->epoch = std::max(store_->epoch, epoch);
  first_link_epoch_ = 0;
  unfenced_ = {store_->plan.machines.begin(), store_->plan.machines.end()};
  world().Tell([&] { return "the coordinator fences: epoch " + std::to_string(epoch); });
  for (Machine machine : store_->plan.machines) {
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_deployment(id());
    message.mutable_fence()->set_epoch(epoch);
    Say(machine, std::move(message));
  }
}

std::vector<std::string> SimDeployment::UnfencedNodes() const {
  std::vector<std::string> nodes;
  for (Machine machine : unfenced_) {
    nodes.push_back(cluster_->worker(machine)->name());
  }
  return nodes;
}

void SimDeployment::OnFenceAck(Machine machine, const v1::FenceAck& ack) {
  const uint64_t epoch = ack.epoch();
  if (engine_ == nullptr || epoch != fence_epoch_) {
    return;
  }
  if (ack.has_error()) {
    OnLinkFault(epoch, StatusOf(ack.error()));
    return;
  }
  if (unfenced_.erase(machine) > 0 && unfenced_.empty()) {
    OpenFirstLink(epoch, world().now() + world().scenario.step_timeout / 2);
  }
}

void SimDeployment::OpenFirstLink(uint64_t epoch, TimePoint deadline) {
  if (engine_ == nullptr || epoch != fence_epoch_ || first_link_epoch_ == epoch) {
    return;
  }
  if (world().now() >= deadline) {
    OnLinkFault(epoch, Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED",
                             "the link to the first stage could not be opened"));
    return;
  }
  const Machine machine = store_->plan.machines[0];
  SimWorker* worker = cluster_->worker(machine);
  auto answer = [this, epoch, deadline, machine, alive = alive_,
                 network = cluster_->network](bool accepted) {
    network->SendControl(machine, kCoordinatorMachine, [this, epoch, deadline, alive, accepted] {
      if (*alive) {
        OnFirstLink(epoch, accepted, deadline);
      }
    });
  };
  v1::LinkOpen open;
  open.set_from_incarnation(life_);
  open.set_to_node(NodeName(machine));
  open.set_to_incarnation(incarnations_.at(machine));
  open.set_deployment(id());
  open.set_epoch(epoch);
  cluster_->network->SendControl(kCoordinatorMachine, machine,
                                 [worker, open, answer] { worker->OnLinkOpen(open, answer); });
}

void SimDeployment::OnFirstLink(uint64_t epoch, bool accepted, TimePoint deadline) {
  if (engine_ == nullptr || awaiting_ || epoch != fence_epoch_ || first_link_epoch_ == epoch) {
    return;
  }
  if (!accepted) {
    world().After(kDialPause, [this, epoch, deadline, alive = alive_] {
      if (*alive) {
        OpenFirstLink(epoch, deadline);
      }
    });
    return;
  }
  first_link_epoch_ = epoch;
  if (state_ == State::kLoading) {
    state_ = State::kReady;
    world().Tell([&] { return "the model is ready"; });
  }
  engine_->OnFenced(epoch, world().now());
  Watch();
}

void SimDeployment::OnLinkFault(uint64_t epoch, const absl::Status& status) {
  if (engine_ != nullptr) {
    engine_->OnLinkFault(epoch, status, world().now());
    Watch();
  }
}

void SimDeployment::SendStep(StepMessage step) {
  if (first_link_epoch_ != step.header.epoch()) {
    return;
  }
  meddler_.OnSend(&step);
  const Machine machine = store_->plan.machines[0];
  SimWorker* worker = cluster_->worker(machine);
  const uint64_t to = incarnations_.at(machine);
  const uint64_t epoch = step.header.epoch();
  auto frame = std::make_shared<const StepMessage>(std::move(step));
  Network::Frame sent;
  sent.channel = ChannelOf(id(), epoch);
  sent.to = machine;
  world().Tell([&] {
    sent.what = Show(frame->header);
    return "the coordinator sends " + sent.what + " to " + worker->name();
  });
  sent.arrives = [worker, to, frame] { worker->OnFrame(to, frame); };
  sent.garbled = [worker, to, id = id(), epoch] { worker->OnGarbledFrame(to, id, epoch); };
  cluster_->network->SendFrame(sent);
}

bool SimDeployment::AcceptsResults(const v1::LinkOpen& open) const {
  return engine_ != nullptr && open.epoch() == fence_epoch_;
}

void SimDeployment::OnResult(const ResultMessage& result) {
  if (engine_ != nullptr) {
    ResultMessage restored = result;
    meddler_.OnResult(&restored);
    engine_->OnResult(std::move(restored), world().now());
    Watch();
  }
}

// ---- What must hold.

void SimDeployment::Watch() {
  if (engine_ == nullptr) {
    return;
  }
  const EngineSnapshot snapshot = engine_->Snapshot(world().now());
  CheckMemory(snapshot);
  CheckPages(snapshot);
  CountWaiting(snapshot);
  CheckIdle(snapshot);
  CountWork(snapshot.counters);
  if (snapshot.state == PipelineState::kDown && !was_down_) {
    world().Count(Rule::kPipelineDown);
    world().Tell([&] { return "the pipeline is down"; });
  }
  was_down_ = snapshot.state == PipelineState::kDown;
  if (awaiting_) {
    if (engine_->down() || snapshot.sessions.empty()) {
      StopEngine(absl::UnavailableError("nobody waits any more"));
    } else {
      ScheduleWake();
    }
    return;
  }
  if (state_ == State::kLoading && engine_->down()) {
    Fail(Error(absl::StatusCode::kUnavailable, "LINKS_NOT_OPENED",
               "the stages could not be linked in time"));
    return;
  }
  ScheduleWake();
}

void SimDeployment::CheckMemory(const EngineSnapshot& snapshot) {
  for (const KvSnapshot& kv : snapshot.kv) {
    if (kv.free + kv.live + kv.cached + kv.fenced != kv.total || kv.free > kv.total) {
      world().Fail("the ledger's sum does not hold at stage " + std::to_string(kv.stage));
    }
  }
  for (const SessionSnapshot& session : snapshot.sessions) {
    if (session.guaranteed && session.state == "preempted") {
      world().Fail("guaranteed session " + session.request_id + " was preempted");
    }
  }
  if (snapshot.counters.ledger_mismatches > seen_.ledger_mismatches) {
    world().Fail("ledger and stages disagree: " +
                 (snapshot.problems.empty() ? "" : snapshot.problems.back().what));
  }
}

void SimDeployment::CountWaiting(const EngineSnapshot& snapshot) {
  const auto waits = [](const SessionSnapshot& session) {
    return session.state == "queued" || session.state == "preempted";
  };
  const auto queued = std::find_if(snapshot.sessions.begin(), snapshot.sessions.end(), waits);
  if (queued == snapshot.sessions.end() || snapshot.state != PipelineState::kRunning) {
    return;
  }
  const uint64_t need = PagesFor(uint64_t{queued->prompt_tokens} + queued->generated_tokens + 1);
  for (const KvSnapshot& kv : snapshot.kv) {
    if (need > kv.free) {
      world().Count(need > kv.free + kv.fenced ? Rule::kReservationWaited : Rule::kCommitWaited);
      return;
    }
  }
}

void SimDeployment::CheckPages(const EngineSnapshot& snapshot) {
  std::string wrong = RecountLive(snapshot);
  for (uint32_t s = 0; s < stage_count() && wrong.empty(); ++s) {
    const Machine machine = store_->plan.machines[s];
    const SimWorker& worker = *cluster_->worker(machine);
    if (snapshot.state == PipelineState::kRunning && worker.up() &&
        worker.incarnation() == incarnations_.at(machine)) {
      wrong = RecountStage(snapshot, s, worker.pages_in_use(id()));
    }
  }
  if (!wrong.empty()) {
    world().Fail(wrong);
  }
}

// When the ledger says that all is free, the stages must have nothing but what is cached.
void SimDeployment::CheckIdle(const EngineSnapshot& snapshot) {
  if (!IsIdle(snapshot)) {
    return;
  }
  for (uint32_t s = 0; s < stage_count(); ++s) {
    const Machine machine = store_->plan.machines[s];
    const SimWorker& worker = *cluster_->worker(machine);
    if (!worker.up() || worker.incarnation() != incarnations_.at(machine)) {
      continue;
    }
    if (worker.sequences(id()) != snapshot.cached_sequences ||
        worker.pages_in_use(id()) > snapshot.kv[s].cached) {
      world().Fail(worker.name() + " holds " + std::to_string(worker.sequences(id())) +
                   " sequences in " + std::to_string(worker.pages_in_use(id())) +
                   " KV pages that the ledger says are free");
    }
  }
}

void SimDeployment::CountWork(const EngineCounters& counters) {
  auto count = [this](Rule rule, uint64_t now, uint64_t before) {
    for (uint64_t i = before; i < now; ++i) {
      world().Count(rule);
    }
  };
  count(Rule::kReplay, counters.replays, seen_.replays);
  count(Rule::kRebuild, counters.rebuilds, seen_.rebuilds);
  count(Rule::kPreempted, counters.preemptions, seen_.preemptions);
  count(Rule::kPrefixHit, counters.prefix_hits, seen_.prefix_hits);
  count(Rule::kWaves, counters.slices_sent, seen_.slices_sent);
  count(Rule::kPrefixEvicted, counters.prefix_evictions, seen_.prefix_evictions);
  if (counters.prefix_forks_failed > seen_.prefix_forks_failed &&
      world().counts.faults[static_cast<size_t>(FaultKind::kFlipBit)] == 0) {
    world().Fail("a stage has not what the prefix cache offered, and no fault explains it");
  }
  count(Rule::kFault, counters.faults, seen_.faults);
  count(Rule::kOffender, counters.offenders, seen_.offenders);
  count(Rule::kFenceTimeout, counters.fences_failed, seen_.fences_failed);
  count(Rule::kResultDiscarded, counters.results_discarded, seen_.results_discarded);
  seen_ = counters;
}

void SimDeployment::ScheduleWake() {
  const std::optional<TimePoint> wake = engine_->NextWake();
  if (!wake.has_value() || (wake_.has_value() && *wake_ <= *wake)) {
    return;
  }
  wake_ = wake;
  world().events.At(*wake, [this, alive = alive_, at = *wake] {
    if (!*alive || wake_ != at) {
      return;
    }
    wake_.reset();
    if (engine_ == nullptr) {
      return;
    }
    const std::optional<TimePoint> due = engine_->NextWake();
    if (due.has_value() && *due <= world().now()) {
      engine_->Tick(world().now());
      if (engine_->Snapshot(world().now()).counters.faults > seen_.faults) {
        world().Count(Rule::kStepTimeout);
      }
    }
    Watch();
  });
}

}  // namespace strata::sim
