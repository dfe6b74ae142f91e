#include "worker/service/stage_task.h"

#include <utility>

#include "common/app/log.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint32_t kDefaultStepTimeoutMs = 10'000;

milliseconds StepTimeoutOf(const v1::Load& load) {
  return milliseconds(load.step_timeout_ms() == 0 ? kDefaultStepTimeoutMs : load.step_timeout_ms());
}

class Reporter : public ShardHostEvents {
 public:
  Reporter(std::shared_ptr<Outbox> out, std::function<void()> give_up,
           std::function<void()> before_fault)
      : out_(std::move(out)),
        give_up_(std::move(give_up)),
        before_fault_(std::move(before_fault)) {}

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
    before_fault_();
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
  const std::function<void()> before_fault_;
};

}  // namespace

StageTask::StageTask(StageId id, v1::Load load, uint64_t incarnation, std::shared_ptr<Outbox> out)
    : id(id),
      load(std::move(load)),
      incarnation(incarnation),
      out(std::move(out)),
      seat_watch(StepTimeoutOf(this->load)) {}

absl::Status StageTask::LoadAndHost(const LoadContext& context, const StageSurroundings& around) {
  LoadedStage stage;
  {
    MutexLock lock(&mutex);
    stage.shard = std::move(shard);
    stage.pin = std::move(pin);
  }
  if (stage.shard != nullptr) {
    auto spec = ResizeStage(load, context, stage.shard.get());
    if (!spec.ok()) {
      // Kept: the next Load may be the one before it again.
      MutexLock lock(&mutex);
      shard = std::move(stage.shard);
      pin = std::move(stage.pin);
      return spec.status();
    }
    stage.spec = *std::move(spec);
  } else {
    ASSIGN_OR_RETURN(stage, LoadStage(load, context, &counters, &cancel));
  }
  // Checked before: it does not fail.
  ASSIGN_OR_RETURN(const StageRequest request, CheckLoad(load, *context.backend));
  if (stage.rank != nullptr && load.ranks().rank() > 0) {
    auto seated = MakeSeat(load, std::move(stage.rank), stage.spec, around.ranks, around.clock);
    MutexLock lock(&mutex);
    seat = std::move(seated);
    pin = std::move(stage.pin);
    return absl::OkStatus();
  }
  if (stage.rank != nullptr) {
    stage.shard = MakeLeader(load, std::move(stage.rank), around.ranks, around.clock);
  }
  ShardHostConfig config = HostConfigOf(load, std::move(stage.spec));
  config.weight_bytes = request.weight_bytes;
  config.runner.node = around.node;
  config.incarnation = incarnation;
  if (config.next_node.empty()) {
    config.next_address = around.coordinator;
  }
  auto hosted = std::make_shared<ShardHost>(
      std::move(config), std::move(stage.shard), around.clock, around.compute, around.dialer,
      MakeStageEvents(out, around.give_up, around.before_fault));
  MutexLock lock(&mutex);
  host = std::move(hosted);
  pin = std::move(stage.pin);
  return absl::OkStatus();
}

v1::LoadProgress StageTask::Progress() const {
  v1::LoadProgress progress;
  progress.set_deployment(load.deployment());
  progress.set_epoch(load.epoch());
  const bool packing = counters.packing;  // It may begin meanwhile.
  progress.set_phase(packing ? v1::LoadProgress::PHASE_PACKING : v1::LoadProgress::PHASE_FETCHING);
  progress.set_done_bytes(packing ? counters.packed_bytes : counters.fetch.done_bytes);
  progress.set_total_bytes(packing ? counters.packing_bytes : counters.fetch.total_bytes);
  progress.set_fetched_bytes(counters.fetch.fetched_bytes);
  return progress;
}

uint64_t StageTask::Bytes() {
  MutexLock lock(&mutex);
  if (host != nullptr) {
    return host->memory_bytes();
  }
  if (seat != nullptr) {
    return seat->memory_bytes();
  }
  return shard != nullptr ? shard->MemoryBytes() : 0;
}

std::shared_ptr<RankSeat> StageTask::Seat() {
  MutexLock lock(&mutex);
  return seat;
}

bool StageTask::SeatHangs(nanoseconds passed) {
  MutexLock lock(&mutex);
  return seat != nullptr && seat_watch.Hangs(seat->call_at_hand(), passed);
}

std::shared_ptr<ShardHost> StageTask::Host() {
  MutexLock lock(&mutex);
  return host;
}

ShardHostConfig HostConfigOf(const v1::Load& load, StageSpec spec) {
  ShardHostConfig config;
  config.model = load.model();
  config.runner.deployment = load.deployment();
  config.runner.epoch = load.epoch();
  config.runner.stage = load.stage();
  config.runner.stage_count = load.stage_count();
  config.runner.spec = std::move(spec);
  config.runner.weights_digest = load.weights_digest();
  config.runner.numerics_class = load.numerics_class();
  config.pipeline = load.pipeline();
  config.max_in_flight = load.max_in_flight();
  config.next_node = load.next_node();
  config.next_incarnation = load.next_incarnation();
  config.next_address = load.next_address();
  config.step_timeout = StepTimeoutOf(load);
  return config;
}

std::shared_ptr<ShardHostEvents> MakeStageEvents(std::shared_ptr<Outbox> out,
                                                 std::function<void()> give_up,
                                                 std::function<void()> before_fault) {
  return std::make_shared<Reporter>(std::move(out), std::move(give_up), std::move(before_fault));
}

}  // namespace strata
