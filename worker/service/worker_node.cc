#include "worker/service/worker_node.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/app/log.h"
#include "common/platform/heap.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/service/shard_host.h"
#include "worker/service/stage_loader.h"
#include "worker/service/stage_task.h"

namespace strata {
namespace {

constexpr milliseconds kTick{200};
constexpr milliseconds kLookAtDiskEvery{500};
// What a tick counts for at most: longer ones were no ticks, the process was stopped.
constexpr milliseconds kMostTick{400};

std::string LayersOf(const v1::Load& load) {
  return std::to_string(load.first_layer()) + "-" + std::to_string(load.last_layer());
}

}  // namespace

WorkerNode::WorkerNode(WorkerNodeOptions options, const WorkerNodeParts& parts)
    : options_(std::move(options)),
      parts_(parts),
      disk_(parts.cache->directory(), kLookAtDiskEvery),
      layers_(parts.cache, parts.backend->name() + " " + parts.backend->facts().kind),
      cache_teller_(parts.cache, &layers_),
      measurer_(parts.measure),
      stages_(options_.name, this),
      reference_(LayerReference::Parts{.node = options_.name,
                                       .context = ContextOf([this](Memory memory, uint64_t bytes) {
                                         return ReserveAside(memory, &for_reference_, bytes);
                                       }),
                                       .compute = &compute_}),
      keeper_(LayerKeeper::Parts{.node = options_.name,
                                 .context = KeepingContext([this](Memory memory, uint64_t bytes) {
                                   return ReserveAside(memory, &for_keeper_, bytes);
                                 }),
                                 .limit_bytes = options_.standby_limit_bytes,
                                 .disk_reserve_bytes = options_.standby_reserve_bytes,
                                 .disk_free_bytes = [this] { return disk_.free_bytes(); }}),
      reaper_([this](StageId stage, uint64_t frames_discarded) {
        MutexLock lock(&mutex_);
        stages_.OnGone(stage, frames_discarded);
        changed_.NotifyAll();
      }) {
  ticker_ = std::thread([this] { TickLoop(); });
}

WorkerNode::~WorkerNode() {
  EndLife();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  ticker_.join();
}

std::shared_ptr<Outbox> WorkerNode::BeginLife(uint64_t incarnation) {
  MutexLock lock(&mutex_);
  stages_.BeginLife(incarnation);
  joined_ = false;
  told_unfit_ = false;
  outbox_ = std::make_shared<Outbox>();
  return outbox_;
}

void WorkerNode::EndLife() {
  MutexLock lock(&mutex_);
  if (outbox_ != nullptr) {
    outbox_->Close();
    outbox_ = nullptr;
  }
  joined_ = false;
  measurer_.Clear();
  reference_.End(absl::OkStatus());  // Who would hear of it is gone.
  keeper_.End();
  stages_.EndLife();
}

void WorkerNode::Leave() {
  MutexLock lock(&mutex_);
  stages_.Leave();
  keeper_.End();
  reference_.End(Error(absl::StatusCode::kUnavailable, "NODE_STOPPED",
                       "node '" + options_.name + "' is being stopped")
                     .Hint("run the check again, with another worker"));
}

bool WorkerNode::Empty() const {
  MutexLock lock(&mutex_);
  return stages_.Empty() && !reference_.busy();
}

v1::NodeInfo WorkerNode::Info() const {
  v1::NodeInfo info;
  info.set_name(options_.name);
  info.set_incarnation(identity().incarnation);
  info.set_address(options_.address);
  info.set_version(options_.version);
  info.set_backend(parts_.backend->name());
  const DeviceFacts facts = parts_.backend->facts();
  info.set_isa(facts.kind);
  info.set_device(parts_.backend->name());
  info.set_device_name(facts.name);
  info.set_threads(facts.threads);
  for (size_t i = 0; i < facts.devices.size(); ++i) {
    const DividingDevice& device = facts.devices[i];
    v1::NodeDevice& out = *info.add_devices();
    out.set_index(device.index);
    out.set_name(device.name);
    out.set_memory_bytes(device.of_stage.memory_bytes);
    out.set_share_begin(device.of_stage.share.begin);
    out.set_share_end(device.of_stage.share.end);
    if (i < options_.speed.device_read_bytes_per_s.size()) {
      out.set_read_bytes_per_s(options_.speed.device_read_bytes_per_s[i]);
    }
  }
  info.set_memory_bytes(options_.memory_bytes);
  info.set_fixed_bytes(options_.host_memory_bytes != 0 ? options_.host_fixed_bytes
                                                       : options_.fixed_bytes);
  info.set_host_memory_bytes(options_.host_memory_bytes);
  if (const absl::Status health = parts_.backend->Health(); !health.ok()) {
    *info.mutable_unfit() = DetailOf(health);
  }
  info.set_read_bytes_per_s(options_.speed.read_bytes_per_s);
  info.set_flops_per_s(options_.speed.flops_per_s);
  info.set_numerics(parts_.backend->numerics());
  info.set_platform(PlatformName());
  info.set_loads_beside(true);
  info.set_links_ahead(true);
  info.set_ranks(true);
  return info;
}

WorkerReport WorkerNode::Report() const {
  WorkerReport report;
  report.node = options_.name;
  report.version = options_.version;
  report.backend = parts_.backend->name();
  report.isa = parts_.backend->facts().kind;
  report.platform = PlatformName();
  report.threads = parts_.backend->facts().threads;
  report.memory_limit_bytes = options_.memory_bytes;
  report.resident_bytes = ResidentMemoryBytes();
  report.heap_bytes = HeapBytes();
  const AllocatedMemory allocated = parts_.backend->Allocated();
  report.device_active_bytes = allocated.active_bytes;
  report.device_kept_bytes = allocated.kept_bytes;
  report.cache_bytes = parts_.cache->bytes();
  report.fetched_bytes = parts_.fetcher->fetched_bytes();
  report.standby_bytes = keeper_.bytes();
  if (parts_.weight_traffic != nullptr) {
    report.weight_traffic = parts_.weight_traffic();
  }
  std::vector<std::shared_ptr<StageTask>> tasks;
  {
    MutexLock lock(&mutex_);
    report.joined = joined_;
    tasks = Placed();
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
  std::vector<std::shared_ptr<StageTask>> tasks;
  {
    MutexLock lock(&mutex_);
    heartbeat = stages_.Heartbeat(term);
    if (options_.host_memory_bytes != 0) {
      heartbeat.set_device_used_bytes(options_.fixed_bytes + stages_.BytesBeside(0) +
                                      for_reference_.device_bytes + for_keeper_.device_bytes);
    }
    tasks = Placed();
  }
  if (const absl::Status health = parts_.backend->Health(); !health.ok()) {
    *heartbeat.mutable_unfit() = DetailOf(health);
  }
  heartbeat.set_used_bytes(ResidentMemoryBytes());
  heartbeat.set_cache_bytes(parts_.cache->bytes());
  heartbeat.set_fetched_bytes(parts_.fetcher->fetched_bytes());
  if (parts_.weight_traffic != nullptr) {
    const WeightTraffic traffic = parts_.weight_traffic();
    heartbeat.set_fetched_from_workers_bytes(traffic.fetched_bytes);
    heartbeat.set_sent_bytes(traffic.sent_bytes);
    heartbeat.set_bad_blobs(traffic.bad_blobs);
  }
  if (const std::optional<uint64_t> free_bytes = disk_.free_bytes()) {
    heartbeat.set_disk_free_bytes(*free_bytes);
  }
  for (const auto& task : tasks) {
    if (const auto host = task->Host()) {
      const RunnerStats stats = host->stats();
      heartbeat.set_sequences(heartbeat.sequences() + stats.sequences);
      heartbeat.set_frames_discarded(heartbeat.frames_discarded() + stats.frames_discarded);
    }
  }
  return heartbeat;
}

void WorkerNode::OnMessage(const v1::CoordinatorMessage& message) {
  if (message.has_load()) {
    const v1::Load& load = message.load();
    LogInfo({{"model", load.model()},
             {"deployment", load.deployment()},
             {"epoch", load.epoch()},
             {"stage", load.stage()},
             {"layers", LayersOf(load)}},
            "loading layers");
  }
  MutexLock lock(&mutex_);
  if (message.has_registered()) {
    joined_ = outbox_ != nullptr;
    term_ = message.registered().term();
    return;
  }
  if (stages_.OnMessage(message) || outbox_ == nullptr) {
    return;
  }
  if (message.has_measure_peer()) {
    measurer_.Add(message.measure_peer(), outbox_);
  } else if (message.has_compute_layers()) {
    reference_.OnMessage(message.compute_layers(), outbox_);
  } else if (message.has_keep_layer()) {
    keeper_.OnKeep(message.keep_layer(), outbox_);
  } else if (message.has_drop_layers()) {
    keeper_.OnDrop(message.drop_layers());
  }
}

void WorkerNode::TellUnfit() {
  const absl::Status health = parts_.backend->Health();
  if (health.ok()) {
    return;
  }
  // Whoever comes second waits until it was said.
  MutexLock telling(&telling_unfit_);
  std::shared_ptr<Outbox> outbox;
  uint64_t term = 0;
  {
    MutexLock lock(&mutex_);
    if (told_unfit_ || !joined_ || outbox_ == nullptr) {
      return;
    }
    told_unfit_ = true;
    outbox = outbox_;
    term = term_;
  }
  LogError({{"node", options_.name}}, "this worker cannot compute any more: " + Describe(health));
  v1::WorkerMessage message;
  *message.mutable_heartbeat() = MakeHeartbeat(term);
  outbox->Send(std::move(message));
}

// ---- What NodeStages asks for.

void WorkerNode::Say(v1::WorkerMessage message) { outbox_->Send(std::move(message)); }

void WorkerNode::Add(StageId stage, const v1::Load& load, StageId before) {
  auto task = std::make_shared<StageTask>(stage, load, stages_.incarnation(), outbox_);
  if (before != 0) {
    StageTask& old = *tasks_.at(before);
    MutexLock old_lock(&old.mutex);
    old.successor = task;
  }
  tasks_[stage] = std::move(task);
}

void WorkerNode::BeginLoad(StageId stage) {
  const std::shared_ptr<StageTask>& task = tasks_.at(stage);
  task->thread = std::thread([this, task] { RunLoad(task); });
}

void WorkerNode::TakeOff(StageId stage) {
  const auto task = tasks_.find(stage);
  task->second->cancel.Cancel();
  reaper_.Add(std::move(task->second));
  tasks_.erase(task);
  changed_.NotifyAll();
}

std::vector<std::shared_ptr<StageTask>> WorkerNode::Placed() const {
  std::vector<std::shared_ptr<StageTask>> tasks;
  for (const StageId id : stages_.Placed()) {
    tasks.push_back(tasks_.at(id));
  }
  return tasks;
}

// ---- Loading and taking off.

uint64_t WorkerNode::FreeFor(Memory memory, StageId stage) const {
  const bool host = memory == Memory::kHost;
  const uint64_t all = host ? options_.host_memory_bytes : options_.memory_bytes;
  const uint64_t fixed = host ? options_.host_fixed_bytes : options_.fixed_bytes;
  const uint64_t aside = for_reference_.of(memory) + for_keeper_.of(memory);
  const uint64_t used = fixed + (stage != 0 ? aside : 0) +
                        (host ? stages_.HostBytesBeside(stage) : stages_.BytesBeside(stage));
  return all > used ? all - used : 0;
}

uint64_t WorkerNode::Reserve(Memory memory, StageTask* task, uint64_t bytes) {
  MutexLock lock(&mutex_);
  MakeRoom(memory, *task, bytes);
  const uint64_t free = FreeFor(memory, task->id);
  if (bytes > free) {
    return free;
  }
  if (memory == Memory::kHost) {
    stages_.SetHostBytes(task->id, bytes);
  } else {
    stages_.SetBytes(task->id, bytes);
  }
  return free;
}

void WorkerNode::MakeRoom(Memory memory, const StageTask& task, uint64_t bytes) {
  if (bytes > FreeFor(memory, task.id) + for_reference_.of(memory) + for_keeper_.of(memory)) {
    return;  // It would not help.
  }
  const auto wants = [&](const Aside& aside) STRATA_REQUIRES(mutex_) {
    return aside.of(memory) > 0 && bytes > FreeFor(memory, task.id) && !task.cancel.cancelled();
  };
  while (wants(for_keeper_)) {
    keeper_.Interrupt(Error(absl::StatusCode::kAborted, "GAVE_WAY",
                            "node '" + options_.name + "' needed the memory to load a model")
                          .Hint("it is tried again"));
    changed_.WaitFor(&mutex_, kTick);
  }
  while (wants(for_reference_)) {
    reference_.End(Error(absl::StatusCode::kAborted, "CHECK_GAVE_WAY",
                         "node '" + options_.name + "' needed the memory to load a model")
                       .Hint("run the check again, or have another worker compute with --node"));
    changed_.WaitFor(&mutex_, kTick);
  }
}

uint64_t WorkerNode::ReserveAside(Memory memory, Aside* aside, uint64_t bytes) {
  MutexLock lock(&mutex_);
  const uint64_t others = for_reference_.of(memory) + for_keeper_.of(memory) - aside->of(memory);
  const uint64_t all = FreeFor(memory, 0);
  const uint64_t free = all > others ? all - others : 0;
  if (bytes <= free) {
    aside->of(memory) = bytes;
    changed_.NotifyAll();
  }
  return free;
}

LoadContext WorkerNode::KeepingContext(ReserveFn reserve) {
  LoadContext context = ContextOf(std::move(reserve));
  context.keep_packed = options_.keep_packed;
  context.layers = &layers_;
  return context;
}

LoadContext WorkerNode::ContextOf(ReserveFn reserve) const {
  LoadContext context;
  context.backend = parts_.backend;
  context.cache = parts_.cache;
  context.fetcher = parts_.fetcher;
  context.client = parts_.blobs;
  context.keep_packed = false;
  context.reserve_memory = [reserve](uint64_t bytes) { return reserve(Memory::kDevice, bytes); };
  if (options_.host_memory_bytes != 0) {
    context.reserve_host_memory = [reserve](uint64_t bytes) {
      return reserve(Memory::kHost, bytes);
    };
  }
  context.log = [](const std::string& line) { LogWarn({}, line); };
  return context;
}

void WorkerNode::RunLoad(const std::shared_ptr<StageTask>& task) {
  const TimePoint begin = parts_.clock->Now();
  const LoadContext context = KeepingContext(
      [this, task](Memory memory, uint64_t bytes) { return Reserve(memory, task.get(), bytes); });
  const absl::Status status = task->LoadAndHost(context, {.node = options_.name,
                                                          .coordinator = options_.coordinator,
                                                          .clock = parts_.clock,
                                                          .compute = &compute_,
                                                          .dialer = parts_.dialer,
                                                          .ranks = parts_.ranks,
                                                          .give_up = parts_.give_up,
                                                          .before_fault = [this] { TellUnfit(); }});
  const auto took_ms = static_cast<uint64_t>(ToMs(parts_.clock->Now() - begin));
  const v1::Load& load = task->load;
  if (status.ok()) {
    LogInfo({{"model", load.model()},
             {"deployment", load.deployment()},
             {"epoch", load.epoch()},
             {"stage", load.stage()},
             {"layers", LayersOf(load)},
             {"fetched", FormatSize(task->counters.fetch.fetched_bytes)},
             {"packed_before", FormatSize(task->counters.kept_bytes)},
             {"took_ms", took_ms}},
            "layers are ready");
  } else if (!task->cancel.cancelled()) {
    LogError({{"model", load.model()},
              {"deployment", load.deployment()},
              {"epoch", load.epoch()},
              {"stage", load.stage()},
              {"layers", LayersOf(load)}},
             "layers cannot be loaded: " + Describe(status));
  }
  {
    MutexLock lock(&task->mutex);
    task->ended = true;
  }
  TellUnfit();
  MutexLock lock(&mutex_);
  stages_.OnLoaded(task->id, task->Progress(), status, task->Bytes());
}

void WorkerNode::TellCache() {
  std::shared_ptr<Outbox> outbox;
  uint64_t incarnation = 0;
  {
    MutexLock lock(&mutex_);
    if (!joined_ || outbox_ == nullptr) {
      return;
    }
    outbox = outbox_;
    incarnation = stages_.incarnation();
  }
  for (v1::WorkerMessage& message : cache_teller_.Changes(incarnation)) {
    outbox->Send(std::move(message));
  }
}

void WorkerNode::TickLoop() {
  std::vector<std::shared_ptr<StageTask>> tasks;
  auto last = std::chrono::steady_clock::now();
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) {
        return;
      }
      changed_.WaitFor(&mutex_, kTick);
      tasks = Placed();
    }
    TellUnfit();
    TellCache();
    const auto now = std::chrono::steady_clock::now();
    const nanoseconds passed = std::min<nanoseconds>(now - last, kMostTick);
    last = now;
    for (const auto& task : tasks) {
      {
        const v1::LoadProgress progress = task->Progress();
        MutexLock lock(&mutex_);
        stages_.OnProgress(task->id, progress);
      }
      if (const std::shared_ptr<ShardHost> host = task->Host()) {
        host->Watch(passed);
      }
      if (task->SeatHangs(passed)) {
        LogError({{"deployment", task->load.deployment()}},
                 "a rank's call takes longer than the step timeout and may never end; giving up");
        parts_.give_up();
      }
    }
  }
}

}  // namespace strata
