#include "worker/service/worker_node.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/app/log.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/service/shard_host.h"
#include "worker/service/stage_loader.h"

namespace strata {
namespace {

constexpr milliseconds kTick{200};
// What a tick counts for at most: longer ones were no ticks, the process was stopped.
constexpr milliseconds kMostTick{400};
constexpr size_t kMaxToMeasure = 1024;
constexpr uint32_t kDefaultStepTimeoutMs = 10'000;

// What stages say goes to the outbox of their life.
class Reporter : public ShardHostEvents {
 public:
  Reporter(std::shared_ptr<Outbox> out, std::function<void()> give_up)
      : out_(std::move(out)), give_up_(std::move(give_up)) {}

  void OnFenceAck(const v1::FenceAck& ack) override {
    v1::WorkerMessage message;
    *message.mutable_fence_ack() = ack;
    if (ack.has_error()) {
      LogWarn({{"deployment", ack.deployment()}, {"epoch", ack.epoch()}},
              "the epoch cannot begin: " + Describe(StatusOf(ack.error())));
    }
    out_->Send(std::move(message));
  }

  void OnLinkFault(const v1::LinkFault& fault) override {
    LogWarn({{"deployment", fault.deployment()},
             {"epoch", fault.epoch()},
             {"step", fault.step()},
             {"stage", fault.stage()}},
            "fault: " + Describe(StatusOf(fault.error())));
    v1::WorkerMessage message;
    *message.mutable_link_fault() = fault;
    out_->Send(std::move(message));
  }

  void OnStepHangs() override {
    LogError({}, "a step takes longer than the step timeout and may never end; giving up");
    give_up_();
  }

 private:
  const std::shared_ptr<Outbox> out_;
  const std::function<void()> give_up_;
};

std::string LayersOf(const v1::Load& load) {
  return std::to_string(load.first_layer()) + "-" + std::to_string(load.last_layer());
}

}  // namespace

// One deployment's stage here, from its Load to its end.
struct WorkerNode::Task {
  Task(v1::Load load, std::shared_ptr<Outbox> out) : load(std::move(load)), out(std::move(out)) {}

  // Tells how far loading is; nothing once it has ended, and nothing twice.
  void Report() STRATA_EXCLUDES(mutex) {
    MutexLock lock(&mutex);
    if (ended) {
      return;
    }
    v1::LoadProgress progress = Progress();
    std::string text = progress.SerializeAsString();
    if (text != reported) {
      reported = std::move(text);
      Send(progress);
    }
  }

  v1::LoadProgress Progress() const {
    v1::LoadProgress progress;
    progress.set_deployment(load.deployment());
    progress.set_epoch(load.epoch());
    progress.set_phase(counters.packing ? v1::LoadProgress::PHASE_PACKING
                                        : v1::LoadProgress::PHASE_FETCHING);
    progress.set_done_bytes(counters.packing ? counters.packed_bytes : counters.fetch.done_bytes);
    progress.set_total_bytes(counters.packing ? counters.packing_bytes
                                              : counters.fetch.total_bytes);
    progress.set_fetched_bytes(counters.fetch.fetched_bytes);
    return progress;
  }

  void Send(const v1::LoadProgress& progress) {
    v1::WorkerMessage message;
    *message.mutable_load_progress() = progress;
    out->Send(std::move(message));
  }

  const v1::Load load;
  const std::shared_ptr<Outbox> out;
  Cancellation cancel;
  LoadCounters counters;
  std::thread thread;

  Mutex mutex;
  bool ended STRATA_GUARDED_BY(mutex) = false;  // Loading has.
  std::string reported STRATA_GUARDED_BY(mutex);
  uint64_t reserved_bytes STRATA_GUARDED_BY(mutex) = 0;
  std::unique_ptr<CachePin> pin STRATA_GUARDED_BY(mutex);
  std::shared_ptr<ShardHost> host STRATA_GUARDED_BY(mutex);
  // The weights of a stage that was loaded here before, until `host` has them.
  std::unique_ptr<Shard> shard STRATA_GUARDED_BY(mutex);
  // Once retired: who wants its weights.
  std::shared_ptr<Task> heir STRATA_GUARDED_BY(mutex);

  std::shared_ptr<ShardHost> Host() STRATA_EXCLUDES(mutex) {
    MutexLock lock(&mutex);
    return host;
  }
};

WorkerNode::WorkerNode(WorkerNodeOptions options, const WorkerNodeParts& parts)
    : options_(std::move(options)), parts_(parts) {
  reaper_ = std::thread([this] { ReapLoop(); });
  measurer_ = std::thread([this] { MeasureLoop(); });
  ticker_ = std::thread([this] { TickLoop(); });
}

WorkerNode::~WorkerNode() {
  EndLife();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  reaper_.join();
  measurer_.join();
  ticker_.join();
}

std::shared_ptr<Outbox> WorkerNode::BeginLife(uint64_t incarnation) {
  MutexLock lock(&mutex_);
  incarnation_ = incarnation;
  outbox_ = std::make_shared<Outbox>();
  return outbox_;
}

void WorkerNode::EndLife() {
  MutexLock lock(&mutex_);
  if (outbox_ != nullptr) {
    outbox_->Close();
    outbox_ = nullptr;
  }
  to_measure_.clear();
  while (!tasks_.empty()) {
    std::shared_ptr<Task> task = tasks_.begin()->second;
    tasks_.erase(tasks_.begin());
    Retire(std::move(task), /*answer=*/false);
  }
}

void WorkerNode::Leave() {
  MutexLock lock(&mutex_);
  leaving_ = true;
}

bool WorkerNode::Empty() const {
  MutexLock lock(&mutex_);
  return tasks_.empty() && retiring_ == 0;
}

v1::NodeInfo WorkerNode::Info() const {
  v1::NodeInfo info;
  info.set_name(options_.name);
  info.set_incarnation(identity().incarnation);
  info.set_address(options_.address);
  info.set_version(options_.version);
  info.set_backend(parts_.backend->name());
  info.set_isa(parts_.backend->isa());
  info.set_device(parts_.backend->name());
  info.set_threads(parts_.backend->threads());
  info.set_memory_bytes(options_.memory_bytes);
  info.set_fixed_bytes(options_.fixed_bytes);
  info.set_read_bytes_per_s(options_.speed.read_bytes_per_s);
  info.set_flops_per_s(options_.speed.flops_per_s);
  info.set_numerics(parts_.backend->numerics());
  info.set_platform(PlatformName());
  return info;
}

WorkerReport WorkerNode::Report() const {
  WorkerReport report;
  report.node = options_.name;
  report.version = options_.version;
  report.backend = parts_.backend->name();
  report.isa = parts_.backend->isa();
  report.platform = PlatformName();
  report.threads = parts_.backend->threads();
  report.memory_limit_bytes = options_.memory_bytes;
  report.resident_bytes = ResidentMemoryBytes();
  report.cache_bytes = parts_.cache->bytes();
  report.fetched_bytes = parts_.fetcher->fetched_bytes();
  std::vector<std::shared_ptr<Task>> tasks;
  {
    MutexLock lock(&mutex_);
    report.joined = outbox_ != nullptr;
    for (const auto& [id, task] : tasks_) {
      tasks.push_back(task);
    }
  }
  // The newest deployment of a model first: series are one a model and stage.
  std::set<std::pair<std::string, uint32_t>> seen;
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    const auto host = (*task)->Host();
    if (host != nullptr && seen.emplace((*task)->load.model(), (*task)->load.stage()).second) {
      report.stages.push_back(host->Report());
    }
  }
  return report;
}

v1::Heartbeat WorkerNode::MakeHeartbeat(uint64_t term) const {
  v1::Heartbeat heartbeat;
  heartbeat.set_term(term);
  heartbeat.set_used_bytes(ResidentMemoryBytes());
  heartbeat.set_cache_bytes(parts_.cache->bytes());
  heartbeat.set_fetched_bytes(parts_.fetcher->fetched_bytes());
  std::vector<std::shared_ptr<Task>> tasks;
  uint64_t discarded = 0;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, task] : tasks_) {
      tasks.push_back(task);
    }
    discarded = frames_discarded_;
    heartbeat.set_leaving(leaving_);
  }
  uint64_t sequences = 0;
  for (const auto& task : tasks) {
    if (const auto host = task->Host()) {
      const RunnerStats stats = host->stats();
      sequences += stats.sequences;
      discarded += stats.frames_discarded;
    }
  }
  heartbeat.set_sequences(sequences);
  heartbeat.set_frames_discarded(discarded);
  return heartbeat;
}

void WorkerNode::OnMessage(const v1::CoordinatorMessage& message) {
  if (message.has_load()) {
    OnLoad(message.load());
  } else if (message.has_unload()) {
    OnUnload(message.unload().deployment());
  } else if (message.has_fence()) {
    OnFence(message.fence());
  } else if (message.has_measure_peer()) {
    MutexLock lock(&mutex_);
    if (outbox_ != nullptr && to_measure_.size() < kMaxToMeasure) {
      to_measure_.push_back(message.measure_peer());
      changed_.NotifyAll();
    }
  }
}

void WorkerNode::OnLoad(const v1::Load& load) {
  LogInfo({{"model", load.model()},
           {"deployment", load.deployment()},
           {"epoch", load.epoch()},
           {"stage", load.stage()},
           {"layers", LayersOf(load)}},
          "loading layers");
  MutexLock lock(&mutex_);
  if (outbox_ == nullptr) {
    return;
  }
  auto task = std::make_shared<Task>(load, outbox_);
  if (const auto old = tasks_.find(load.deployment()); old != tasks_.end()) {
    if (SameButForKv(old->second->load, load)) {
      MutexLock old_lock(&old->second->mutex);
      old->second->heir = task;
    }
    Retire(std::move(old->second), /*answer=*/false);
    tasks_.erase(old);
  }
  tasks_[load.deployment()] = task;
  task->thread = std::thread([this, task] { RunLoad(task); });
}

void WorkerNode::OnUnload(uint64_t deployment) {
  MutexLock lock(&mutex_);
  const auto it = tasks_.find(deployment);
  if (it != tasks_.end()) {
    Retire(std::move(it->second), /*answer=*/true);
    tasks_.erase(it);
  } else if (outbox_ != nullptr) {
    v1::WorkerMessage message;
    message.mutable_unload_done()->set_deployment(deployment);
    outbox_->Send(std::move(message));
  }
}

std::shared_ptr<ShardHost> WorkerNode::HostOf(uint64_t deployment) const {
  const auto it = tasks_.find(deployment);
  return it == tasks_.end() ? nullptr : it->second->Host();
}

absl::Status WorkerNode::NotLoaded(uint64_t deployment) const {
  return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT",
               "deployment " + std::to_string(deployment) + " is not loaded here")
      .Node(options_.name);
}

void WorkerNode::OnFence(const v1::Fence& fence) {
  std::shared_ptr<ShardHost> host;
  std::shared_ptr<Outbox> out;
  {
    MutexLock lock(&mutex_);
    out = outbox_;
    host = HostOf(fence.deployment());
  }
  if (host != nullptr) {
    host->Fence(fence.epoch());
  } else if (out != nullptr) {
    v1::WorkerMessage message;
    message.mutable_fence_ack()->set_deployment(fence.deployment());
    message.mutable_fence_ack()->set_epoch(fence.epoch());
    *message.mutable_fence_ack()->mutable_error() = DetailOf(NotLoaded(fence.deployment()));
    out->Send(std::move(message));
  }
}

LinkHandler::Identity WorkerNode::identity() const {
  MutexLock lock(&mutex_);
  return {options_.name, incarnation_};
}

absl::StatusOr<std::shared_ptr<LinkSink>> WorkerNode::OnOpen(const v1::LinkOpen& open,
                                                             const std::string& peer,
                                                             std::shared_ptr<InboundLink> link) {
  std::shared_ptr<ShardHost> host;
  {
    MutexLock lock(&mutex_);
    host = HostOf(open.deployment());
  }
  if (host == nullptr) {
    return NotLoaded(open.deployment());
  }
  LogDebug({{"from", open.from_node()},
            {"address", peer},
            {"deployment", open.deployment()},
            {"epoch", open.epoch()},
            {"stage", open.to_stage()}},
           "a link came in");
  return host->AcceptLink(open, std::move(link));
}

uint64_t WorkerNode::Reserve(Task* task, uint64_t bytes) {
  MutexLock lock(&mutex_);
  uint64_t used = options_.fixed_bytes;
  for (const auto& [id, other] : tasks_) {
    if (other.get() != task) {
      MutexLock other_lock(&other->mutex);
      used += other->host != nullptr ? other->host->memory_bytes() : other->reserved_bytes;
    }
  }
  const uint64_t free = options_.memory_bytes > used ? options_.memory_bytes - used : 0;
  if (bytes <= free) {
    MutexLock task_lock(&task->mutex);
    task->reserved_bytes = bytes;
  }
  return free;
}

void WorkerNode::RunLoad(const std::shared_ptr<Task>& task) {
  {
    // What is being taken off frees its memory first.
    MutexLock lock(&mutex_);
    while (retiring_ > 0 && !task->cancel.cancelled()) {
      changed_.WaitFor(&mutex_, kTick);
    }
  }
  absl::Status status = LoadAndHost(task.get());
  const v1::Load& load = task->load;
  if (status.ok()) {
    LogInfo({{"model", load.model()},
             {"deployment", load.deployment()},
             {"epoch", load.epoch()},
             {"stage", load.stage()},
             {"layers", LayersOf(load)},
             {"fetched", FormatSize(task->counters.fetch.fetched_bytes)},
             {"packed_before", FormatSize(task->counters.kept_bytes)}},
            "layers are ready");
  } else if (!task->cancel.cancelled()) {
    LogError({{"model", load.model()},
              {"deployment", load.deployment()},
              {"epoch", load.epoch()},
              {"stage", load.stage()},
              {"layers", LayersOf(load)}},
             "layers cannot be loaded: " + Describe(status));
  }
  MutexLock lock(&task->mutex);
  task->ended = true;
  v1::LoadProgress progress = task->Progress();
  if (status.ok()) {
    progress.set_phase(v1::LoadProgress::PHASE_READY);
  } else {
    v1::ErrorDetail detail = DetailOf(status);
    detail.set_node(options_.name);
    *progress.mutable_error() = detail;
    progress.set_phase(v1::LoadProgress::PHASE_FAILED);
    task->reserved_bytes = task->shard != nullptr ? task->shard->MemoryBytes() : 0;
  }
  task->Send(progress);
}

absl::Status WorkerNode::LoadAndHost(Task* task) {
  const v1::Load& load = task->load;
  LoadContext context;
  context.backend = parts_.backend;
  context.cache = parts_.cache;
  context.fetcher = parts_.fetcher;
  context.client = parts_.blobs;
  context.keep_packed = options_.keep_packed;
  context.reserve_memory = [this, task](uint64_t bytes) { return Reserve(task, bytes); };
  context.log = [](const std::string& line) { LogWarn({}, line); };
  LoadedStage stage;
  {
    MutexLock lock(&task->mutex);
    stage.shard = std::move(task->shard);
    stage.pin = std::move(task->pin);
  }
  if (stage.shard != nullptr) {
    auto spec = ResizeStage(load, context, stage.shard.get());
    if (!spec.ok()) {
      // Kept: the next Load may be the one before it again.
      MutexLock lock(&task->mutex);
      task->shard = std::move(stage.shard);
      task->pin = std::move(stage.pin);
      return spec.status();
    }
    stage.spec = *std::move(spec);
  } else {
    ASSIGN_OR_RETURN(stage, LoadStage(load, context, &task->counters, &task->cancel));
  }
  ShardHostConfig config;
  // Checked before: it does not fail.
  ASSIGN_OR_RETURN(const StageRequest request, CheckLoad(load, parts_.backend->numerics()));
  config.weight_bytes = request.weight_bytes;
  config.model = load.model();
  config.runner.node = options_.name;
  config.runner.deployment = load.deployment();
  config.runner.epoch = load.epoch();
  config.runner.stage = load.stage();
  config.runner.stage_count = load.stage_count();
  config.runner.spec = std::move(stage.spec);
  config.runner.weights_digest = load.weights_digest();
  config.runner.numerics_class = load.numerics_class();
  config.incarnation = identity().incarnation;
  config.pipeline = load.pipeline();
  config.max_in_flight = load.max_in_flight();
  config.next_node = load.next_node();
  config.next_incarnation = load.next_incarnation();
  config.next_address = load.next_node().empty() ? options_.coordinator : load.next_address();
  config.step_timeout =
      milliseconds(load.step_timeout_ms() == 0 ? kDefaultStepTimeoutMs : load.step_timeout_ms());
  auto host = std::make_shared<ShardHost>(std::move(config), std::move(stage.shard), parts_.clock,
                                          &compute_, parts_.dialer,
                                          std::make_shared<Reporter>(task->out, parts_.give_up));
  MutexLock lock(&task->mutex);
  task->host = std::move(host);
  task->pin = std::move(stage.pin);
  return absl::OkStatus();
}

void WorkerNode::Retire(std::shared_ptr<Task> task, bool answer) {
  task->cancel.Cancel();
  ++retiring_;
  retired_.emplace_back(std::move(task), answer);
  changed_.NotifyAll();
}

// One that has nothing to wait for, if there is any: packing cannot be interrupted.
std::shared_ptr<WorkerNode::Task> WorkerNode::TakeRetired(bool* answer) {
  const auto ended = std::find_if(retired_.begin(), retired_.end(), [](const auto& retired) {
    MutexLock lock(&retired.first->mutex);
    return retired.first->ended;
  });
  const auto it = ended == retired_.end() ? retired_.begin() : ended;
  std::shared_ptr<Task> task = std::move(it->first);
  *answer = it->second;
  retired_.erase(it);
  return task;
}

void WorkerNode::ReapLoop() {
  while (true) {
    std::shared_ptr<Task> task;
    bool answer = false;
    {
      MutexLock lock(&mutex_);
      while (retired_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (retired_.empty()) {
        return;
      }
      task = TakeRetired(&answer);
    }
    task->thread.join();
    uint64_t discarded = 0;
    std::unique_ptr<Shard> shard;
    if (const std::shared_ptr<ShardHost> host = task->Host()) {
      shard = host->Stop();
      discarded = host->stats().frames_discarded;
    }
    std::unique_ptr<CachePin> pin;
    std::shared_ptr<Task> heir;
    {
      MutexLock lock(&task->mutex);
      task->host = nullptr;
      pin = std::move(task->pin);
      shard = shard != nullptr ? std::move(shard) : std::move(task->shard);
      heir = std::move(task->heir);
    }
    if (heir != nullptr && shard != nullptr) {
      MutexLock lock(&heir->mutex);
      heir->shard = std::move(shard);  // It waits until retiring_ is 0.
      heir->pin = std::move(pin);
    }
    shard = nullptr;
    pin = nullptr;
    heir = nullptr;
    if (answer) {
      v1::WorkerMessage message;
      message.mutable_unload_done()->set_deployment(task->load.deployment());
      task->out->Send(std::move(message));
    }
    MutexLock lock(&mutex_);
    frames_discarded_ += discarded;
    --retiring_;
    changed_.NotifyAll();
  }
}

void WorkerNode::MeasureLoop() {
  while (true) {
    v1::MeasurePeer peer;
    std::shared_ptr<Outbox> out;
    {
      MutexLock lock(&mutex_);
      while (to_measure_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) {
        return;
      }
      peer = std::move(to_measure_.front());
      to_measure_.pop_front();
      out = outbox_;
    }
    v1::WorkerMessage message;
    *message.mutable_peer_measured() = parts_.measure(peer);
    message.mutable_peer_measured()->set_node(peer.node());
    message.mutable_peer_measured()->set_incarnation(peer.incarnation());
    if (message.peer_measured().has_error()) {
      LogWarn({{"peer", peer.node()}}, Describe(StatusOf(message.peer_measured().error())));
    }
    if (out != nullptr) {
      out->Send(std::move(message));
    }
  }
}

void WorkerNode::TickLoop() {
  std::vector<std::shared_ptr<Task>> tasks;
  auto last = std::chrono::steady_clock::now();
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) {
        return;
      }
      changed_.WaitFor(&mutex_, kTick);
      tasks.clear();
      for (const auto& [id, task] : tasks_) {
        tasks.push_back(task);
      }
    }
    const auto now = std::chrono::steady_clock::now();
    const nanoseconds passed = std::min<nanoseconds>(now - last, kMostTick);
    last = now;
    for (const auto& task : tasks) {
      task->Report();
      if (const std::shared_ptr<ShardHost> host = task->Host()) {
        host->Watch(passed);
      }
    }
  }
}

}  // namespace strata
